"""The command line and configuration files."""

import json
import time

import pytest

from megalite.config.cli import given_fields, parse
from megalite.config.fields import all_fields
from megalite.errors import ConfigError
from tests.config.settings import FLAGS, MODEL, problems


@pytest.fixture
def run_file(tmp_path):
    def write(content: str, name: str = "run.yaml") -> list[str]:
        (tmp_path / name).write_text(content)
        return ["--config", str(tmp_path / name)]

    return write


def test_values_of_every_type():
    flags = "--seed 7 --rampup-batch-size 2 3 4 --lr_decay_style cosine --swiglu"
    config = parse([*FLAGS, *flags.split()])
    assert config.training.seed == 7
    assert config.training.rampup_batch_size == (2, 3, 4)
    assert config.optimizer.lr == 1e-3
    assert config.optimizer.lr_decay_style == "cosine"
    assert config.model.swiglu is True
    assert config.data.data_path == ("corpus",)


def test_underscores_hyphens_and_equals_signs():
    assert parse([*MODEL, "--clip_grad=0.5"]) == parse([*MODEL, "--clip-grad", "0.5"])
    assert parse([*MODEL, "--override-opt_param-scheduler"]) == parse([*MODEL, "--override-opt-param-scheduler"])


def test_blends_keep_their_order_and_negative_numbers_are_values():
    config = parse([*MODEL, "--data-path", "0.3", "a", "0.7", "b", "--weight-decay", "-0.1", "--eval-iters", "0"])
    assert config.data.data_path == ("0.3", "a", "0.7", "b")
    assert config.optimizer.weight_decay == -0.1


def test_switches_can_be_turned_off():
    assert parse([*MODEL, "--no-overlap-grad-reduce"]).parallel.overlap_grad_reduce is False
    assert parse([*MODEL, "--overlap-grad-reduce"]).parallel.overlap_grad_reduce is True
    assert parse([*MODEL, "--no-check-for-nan-in-loss-and-grad"]).training.check_for_nan_in_loss_and_grad is False
    assert parse([*MODEL, "--no-load-optim"]).checkpoint.no_load_optim is True


@pytest.mark.parametrize(
    "flags, text",
    [
        (["--seed", "1.5"], "--seed must be a whole number; given 1.5."),
        (["--clip-grad", "much"], "--clip-grad must be a number; given much."),
        (["--clip-grad", "nan"], "--clip-grad must be a finite number; given nan."),
        (["--min-lr"], "--min-lr must be exactly one value; given nothing."),
        (["--seed", "1", "2"], "--seed must be exactly one value; given 1 2."),
        (["--rampup-batch-size", "1", "2"], "--rampup-batch-size must be 3 values (INT INT INT); given 1 2."),
        (["--normalization", "Norm"], "--normalization must be one of LayerNorm, RMSNorm; given Norm."),
        (["--valid-data-path"], "--valid-data-path must be at least one value; given nothing."),
        (["--swiglu", "yes"], "--swiglu must be true or false; given yes."),
        (["--hidden-sise", "4"], "--hidden-sise is not known: perhaps you meant --hidden-size."),
        (["--use-mcore-model"], "--use-mcore-model is not known: perhaps you meant --use-mcore-models."),
        (["--zzzz"], "--zzzz is not known: --help lists all flags."),
        (["-x"], "flags begin with two hyphens; given -x."),
        (["--seed", "1", "--seed", "2"], "a flag must be given once; given: --seed 1, --seed 2. Keep one."),
        (
            ["--swiglu", "--no-swiglu"],
            "--swiglu and --no-swiglu contradict each other: swiglu would be True and False. Keep one.",
        ),
    ],
)
def test_a_wrong_flag_is_named(flags, text):
    assert problems(*flags) == text


def test_a_value_before_any_flag():
    with pytest.raises(ConfigError, match="a value must follow its flag; 'x' follows none."):
        parse(["x", *FLAGS])


def test_all_problems_are_reported_together():
    text = problems("--hidden-sise", "4", "--seed", "a", "--num-experts", "8")
    assert text.startswith("3 problems:\n")
    assert "--hidden-size" in text and "--seed must be" in text and "--num-experts cannot be honoured" in text


def test_required_flags_are_named_together():
    with pytest.raises(ConfigError) as caught:
        parse(["--num-layers", "x"])
    assert "--num-layers must be a whole number; given x." in str(caught.value)
    assert "--hidden-size, --num-attention-heads, --seq-length must be given." in str(caught.value)


def test_help_lists_every_flag_in_its_group_quickly(capsys):
    start = time.process_time()
    with pytest.raises(SystemExit) as left:
        parse(["--seed", "nonsense", "--help"])
    assert time.process_time() - start < 1
    text = capsys.readouterr().out
    assert left.value.code == 0
    assert all(field.flag in text for field in all_fields().values())
    places = [text.index(part) for part in ("--num-layers INT (required)", "parallel: how the work", "--log-interval")]
    assert places == sorted(places)
    assert "{learned_absolute,rope,none} (learned_absolute)" in text
    assert "--overlap-grad-reduce (on; --no-overlap-grad-reduce turns it off)" in text


def test_a_file_sets_fields_flat_or_by_group(run_file):
    flat = parse(
        run_file("num-layers: 4\nhidden_size: 48\nnum_attention_heads: 12\nseq_length: 32\nlr: 1e-3\nswiglu: true\n")
    )
    nested = parse(
        run_file(
            "model: {num_layers: 4, hidden_size: 48, num_attention_heads: 12, seq_length: 32, swiglu: true}\n"
            "optimizer: {lr: 0.001}\n"
        )
    )
    assert flat == nested == parse([*MODEL, "--lr", "1e-3", "--swiglu"])


def test_a_json_file_means_the_same(run_file):
    content = {"num_layers": 4, "hidden_size": 48, "num_attention_heads": 12, "seq_length": 32, "data_path": [0.5, "a"]}
    assert parse(run_file(json.dumps(content), "run.json")) == parse([*MODEL, "--data-path", "0.5", "a"])


def test_the_command_line_wins_over_the_file_and_the_file_over_overrides(run_file):
    file = run_file(
        "seed: 2\nswiglu: true\nposition_embedding_type: rope\nlr_decay_iters: null\noverlap_grad_reduce: false\n"
    )
    config = parse(
        [*MODEL, *file, "--seed", "3", "--no-swiglu"],
        overrides={"seed": 1, "bf16": True, "lr_decay_iters": 5, "position_embedding_type": "none"},
    )
    assert (config.training.seed, config.training.bf16, config.model.swiglu) == (3, True, False)
    assert (config.model.position_embedding_type, config.optimizer.lr_decay_iters) == ("rope", None)
    assert config.parallel.overlap_grad_reduce is False


def test_a_file_may_name_flags_of_megatron(run_file, notices):
    file = run_file(
        "use_mcore_models: true\nuse-rotary-position-embeddings: true\nnum_experts: null\nmtp_standalone: false\n"
    )
    assert parse([*MODEL, *file]).model.position_embedding_type == "rope"
    assert len(notices()) == 4
    assert [text for text in notices() if text.startswith("num_experts in ") and text.endswith(" asks for nothing.")]


@pytest.mark.parametrize(
    "content, text",
    [
        ("hiden_size: 4", r"hiden_size in \S+ is not known: perhaps you meant hidden_size\."),
        ("seed: [1, 2]", r"seed in \S+ must be exactly one value; given 1 2\."),
        ("seed: true", r"seed in \S+ must be INT; given True\."),
        ("save: yes", r"save in \S+ must be STR; given True\."),
        ("seed: null", r"seed in \S+ must be INT; given null\."),
        ("swiglu: null", r"swiglu in \S+ must be true or false; given null\."),
        ("swiglu: 3", r"swiglu in \S+ must be true or false; given 3\."),
        ("seed: 1\nseed: 2", r"seed must be set once; it is set twice\. Keep one\."),
        ("seed: 1\ntraining: {seed: 2}", r"seed must be set once; \S+ sets it twice\. Keep one\."),
        ("model: {seed: 1}", r"seed must stand in group training; \S+ has it in model\. Move it\."),
        ("- seed", r"must hold a mapping from settings to values; it holds a list\."),
        ("seed: [", r"is not valid: while parsing"),
        ("num_experts: 8", r"num_experts in \S+ cannot be honoured\. Mixture-of-experts"),
    ],
)
def test_a_wrong_file_is_explained(run_file, content, text):
    with pytest.raises(ConfigError, match=text):
        parse([*MODEL, *run_file(content)])


def test_files_that_cannot_be_read(run_file, tmp_path):
    with pytest.raises(ConfigError, match=r"--config \S+missing.yaml cannot be read: No such file"):
        parse([*MODEL, "--config", str(tmp_path / "missing.yaml")])
    with pytest.raises(ConfigError, match=r"must name a file that ends in .yaml, .yml or .json; given '\S+run.txt'"):
        parse([*MODEL, *run_file("seed: 1", "run.txt")])
    with pytest.raises(ConfigError, match="seed must be set once"):
        parse([*MODEL, *run_file('{"seed": 1, "seed": 2}', "run.json")])


def test_an_empty_file_changes_nothing(run_file):
    assert parse([*MODEL, *run_file("")]) == parse(MODEL)


def test_given_fields_need_not_be_complete(run_file):
    assert given_fields([*run_file("seed: 3"), "--load", "x", "--use-checkpoint-args"]) == {
        "seed": 3,
        "load": "x",
        "use_checkpoint_args": True,
    }
    assert given_fields(["--lod", "x", "--seed", "many", "--help"]) == {}


def test_fields_of_a_checkpoint_give_way_to_the_command_line():
    overrides = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "seq_length": 16, "swiglu": True}
    config = parse(["--hidden-size", "32"], overrides=overrides)
    assert (config.model.num_layers, config.model.hidden_size, config.model.swiglu) == (2, 32, True)
