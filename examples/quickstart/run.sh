#!/usr/bin/env bash
# From nothing to a trained, resumed and evaluated language model, on two CPU cores in a few minutes:
# the running Python's own standard library as corpus, a tokenizer trained on it, a small GPT pretrained with tensor and
# pipeline parallelism, then resumed at another layout on the same loss curve.
#
#   bash examples/quickstart/run.sh [DIRECTORY]       ITERS=200 training steps, at most MEGABYTES=1000 of text
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=${1:-$root/examples/quickstart/work}
iters=${ITERS:-200}
megabytes=${MEGABYTES:-1000}
half=$((iters / 2))
mkdir -p "$work"
cd "$root"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}  # four processes share the cores

say() { printf '\n=== %s\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@"; }

say "1/5  Collect the standard library of this Python as JSONL, one document per file, some files held out"
run python examples/quickstart/collect_stdlib.py --train "$work/train.jsonl" --heldout "$work/heldout.jsonl" \
    --max-megabytes "$megabytes"

say "2/5  Train a byte-level BPE tokenizer with 8192 tokens on it"
run python tools/train_tokenizer.py --input "$work/train.jsonl" --vocab-size 8192 --output-dir "$work/tokenizer"

say "3/5  Tokenize it into Megatron's .bin/.idx"
tokenizer=(--tokenizer-type HuggingFaceTokenizer --tokenizer-model "$work/tokenizer")
for part in train heldout; do
    run python tools/preprocess_data.py --input "$work/$part.jsonl" --output-prefix "$work/$part" "${tokenizer[@]}" --append-eod
done

model=(
    --num-layers 4 --hidden-size 128 --num-attention-heads 4 --seq-length 256
    --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear
    --attention-dropout 0 --hidden-dropout 0
)
training=(
    --micro-batch-size 4 --global-batch-size 32 --train-iters "$iters"
    --lr 3e-3 --min-lr 3e-4 --lr-decay-style cosine --lr-warmup-fraction 0.05 --weight-decay 0.1 --adam-beta2 0.95
)
data=(
    --train-data-path "$work/train_text_document" --valid-data-path "$work/heldout_text_document" "${tokenizer[@]}"
)
files=(
    --save "$work/checkpoints" --save-interval "$half" --load "$work/checkpoints"
    --eval-interval "$half" --eval-iters 4 --log-interval 10
)
rm -rf "$work/checkpoints"

say "4/5  Pretrain the first half of $iters steps: 2-way tensor x 2-way pipeline parallel on 4 processes"
run torchrun --standalone --nproc-per-node 4 pretrain_gpt.py \
    --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel \
    "${model[@]}" "${training[@]}" "${data[@]}" "${files[@]}" --exit-interval "$half"

say "5/5  Resume the same run at another layout: 2-way pipeline with 2 virtual stages each x 2-way data parallel"
run torchrun --standalone --nproc-per-node 4 pretrain_gpt.py \
    --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 \
    "${model[@]}" "${training[@]}" "${data[@]}" "${files[@]}"

say "Done. Checkpoints are in $work/checkpoints; the last lines above show held-out loss, perplexity and bits per byte."
