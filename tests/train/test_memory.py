import mmap
from pathlib import Path

import torch

from megalite.train import memory
from megalite.train.memory import DeviceMemory, Memory, measure_memory, peak_rss_bytes, rss_bytes

MIB = 2**20


def test_host_memory_grows_with_what_is_touched_and_the_peak_stays():
    before = rss_bytes()
    block = mmap.mmap(-1, 96 * MIB)  # what malloc is given back, it may keep
    for page in range(0, len(block), mmap.PAGESIZE):
        block[page] = 1
    during = rss_bytes()
    assert 90 * MIB < during - before < 110 * MIB
    block.close()
    assert rss_bytes() < before + 10 * MIB
    assert peak_rss_bytes() > during - 4 * MIB  # the kernel's own counters lag by some pages per thread


def test_the_peak_without_proc_agrees(monkeypatch):
    exact = peak_rss_bytes()
    monkeypatch.setattr(memory, "_STATUS", Path("/nowhere"))
    assert abs(peak_rss_bytes() - exact) < 16 * MIB
    assert rss_bytes() == peak_rss_bytes()


def test_a_cpu_has_host_memory_only():
    figures = measure_memory(torch.device("cpu"))
    assert figures.device is None
    assert figures.headline == figures.rss > 50 * MIB


def test_the_headline_of_a_gpu_is_the_most_it_reserved():
    device = DeviceMemory(reserved=5, allocated=3, max_reserved=7, max_allocated=4, num_allocated=2)
    assert Memory(rss=100, device=device).headline == 7
