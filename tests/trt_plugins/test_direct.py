"""Launches without Triton's own: what is taken for the same kernel is the same to Triton."""

import pytest
import torch

from melforge.common.config.deployment import Bucket
from melforge.common.engines.limits import limits_like
from melforge.common.weights.voices import load_voice
from melforge.trt_plugins import graphs
from melforge.trt_plugins.direct import Ready
from melforge.trt_plugins.graphs import TritonLaunch, describe
from melforge.trt_plugins.triton_setup import compiling_for

LENGTHS = [(Bucket(text, mel), batch) for text, mel in ((32, 16), (64, 256), (352, 1664)) for batch in (1, 2)]


def of_triton(launch: TritonLaunch) -> tuple:
    """What Triton keeps a compiled kernel by."""
    from triton.runtime.driver import driver

    *_, bind = launch.kernel.device_caches[driver.active.get_current_device()]
    _, kinds, options = bind(*launch.for_triton, **launch.options)
    return launch.kernel.fn, str(kinds), str(options)


@pytest.fixture(params=["sm_90:132", "sm_86:46"])
def limits(request):
    """Of a GPU that Triton takes for the one at hand."""
    (found,) = limits_like(request.param)
    with compiling_for(found):
        yield found


@pytest.mark.triton
@pytest.mark.slow
@pytest.mark.parametrize("model", ["fastpitch", "hifigan", "waveglow"])
def test_launches_of_one_kind_have_one_kernel_at_any_length(model, limits):
    from melforge.trt_plugins import ahead

    launches = ahead.launches_for(load_voice().source(model), LENGTHS, limits)
    pairs = {(launch.kind()[0], of_triton(launch)) for launch in launches}
    for each in zip(*pairs, strict=True):
        assert len(set(each)) == len(pairs) < len(launches) / 3


def toy():
    import triton
    from triton import language as tl

    @triton.jit(do_not_specialize=["free"])
    def add(source, target, count, free, given, TIMES: tl.constexpr, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        value = tl.load(source + at, mask=at < count, other=0.0) * TIMES + free
        if given is not None:
            value += given
        tl.store(target + at, value, mask=at < count)

    return add


@pytest.mark.triton
def test_what_triton_compiles_apart_is_of_several_kinds(limits):
    kernel, x = toy(), torch.zeros(64)
    numbers = (1, 7, 16, 0, -16, 2**31 - 1, 2**31, 2**31 + 16)
    every = [(x, x, count, free, None) for count in numbers for free in (1, 16, 2**31)]
    every += [(x[start:], x, 7, 7, given) for start in (0, 1, 4) for given in (None, 0.5, 3, True, x)]
    every += [(x, x[1:], 7, 7, None), (x.half(), x, 7, 7, None)]
    launches = [
        TritonLaunch(kernel, (1,), arguments, {"TIMES": times, "BLOCK": 64})
        for arguments in every
        for times in (1, 1.0, True, 2)
    ]
    pairs = {(launch.kind()[0], of_triton(launch)) for launch in launches}
    kinds, kernels = (set(each) for each in zip(*pairs, strict=True))
    assert len(kinds) == len(pairs) and len(kernels) > 60


@pytest.mark.gpu
@pytest.mark.triton
def test_a_kernel_runs_the_same_when_it_is_launched_again():
    kernel, source = toy(), torch.randn(80, device="cuda")
    for start, count, free in ((0, 64, 5), (1, 33, 2), (4, 1, 1), (0, 48, 2**31)):
        for given in (None, 0.5):
            made = [torch.zeros(64, device="cuda") for _ in range(3)]
            for one in made:
                arguments = source[start:], one, count, free, given
                launch = TritonLaunch(kernel, (1,), arguments, {"TIMES": 3, "BLOCK": 64})
                launch()
            wanted = torch.zeros(64, device="cuda")
            wanted[:count] = source[start : start + count] * 3 + free + (given or 0.0)
            near = [
                torch.allclose(one, wanted, atol=1e-5) for one in made
            ]  # a product and a sum may be one step
            assert all(near) and all(torch.equal(one, made[0]) for one in made)
            known = graphs._ready[torch.cuda.current_device()][launch.kind()[0]]
            assert isinstance(known, Ready)


@pytest.mark.gpu
@pytest.mark.triton
def test_triton_launches_the_kernels_of_others():
    kernel, source, made = toy(), torch.ones(64, device="cuda"), torch.zeros(2, 64, device="cuda")
    TritonLaunch(kernel, (1,), (source, made[0], 33, 5, None), {"TIMES": 3, "BLOCK": 64})()
    kernel[(1,)](source, made[1], 33, 5, None, TIMES=3, BLOCK=64)
    assert made[0, :33].eq(8).all() and torch.equal(*made)


@pytest.mark.gpu
@pytest.mark.triton
def test_tiles_are_copied_the_same_when_a_kernel_is_launched_again():
    import triton
    from triton import language as tl

    from melforge.trt_plugins.tiles import in_tiles

    @triton.jit
    def copy(source, target, rows, ROWS: tl.constexpr, WIDTH: tl.constexpr):
        row = tl.program_id(0) * ROWS
        in_tiles(target).store([row, 0], in_tiles(source).load([row, 0]))

    for rows in (32, 80, 96):  # the last block may be cut off
        source = torch.randn(rows, 64, device="cuda").half()
        made = [torch.zeros_like(source) for _ in range(3)]
        for one in made:
            tiles = describe(source.view(-1), [32, 64], 64), describe(one, [32, 64])
            TritonLaunch(copy, (-(-rows // 32),), (*tiles, rows), {"ROWS": 32, "WIDTH": 64})()
        assert all(torch.equal(one, source) for one in made)
