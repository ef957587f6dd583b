"""Noise: the published generator's bits, any range by itself, and the distributions that are promised."""

from statistics import NormalDist

import numpy as np
import pytest

from melforge.common.noise import bits, draw, table

COUNT = 1 << 20
MASK = (1 << 64) - 1


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x64-10 as its paper defines it, in whole numbers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [(second >> 64) ^ c[1] ^ k[0], second & MASK, (first >> 64) ^ c[3] ^ k[1], first & MASK]
        k = [(k[0] + 0x9E3779B97F4A7C15) & MASK, (k[1] + 0xBB67AE8584CAA73B) & MASK]
    return c


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ([0] * 4, [0] * 2, [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]),
        (
            [MASK] * 4,
            [MASK] * 2,
            [0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0],
        ),
        (
            [0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89],
            [0x452821E638D01377, 0xBE5466CF34E90C6C],
            [0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6],
        ),
    ],
)
def test_the_reference_gives_the_published_answers(counter, key, answer):
    assert philox(counter, key) == answer


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**63 + 11, 2**64 - 1])
@pytest.mark.parametrize("first", [0, 16 * 1000, 2**40])
def test_bits_are_the_references(seed, first):
    words = [word for j in range(4) for word in philox([first // 16 + j + 1, 0, 0, 0], [seed, 0])]
    wanted = [word >> shift & 0xFFFF for word in words for shift in (0, 16, 32, 48)]
    assert bits(seed, first, 64).tolist() == wanted


def test_seeds_count_modulo_two_to_the_64():
    assert np.array_equal(bits(2**64 + 3, 5, 50), bits(3, 5, 50))


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_any_range_is_a_part_of_the_whole(distribution):
    whole = draw(distribution, [4, 9], 0, 300)
    assert whole.shape == (2, 300) and whole.dtype == np.float32
    for first, count in ((0, 1), (0, 300), (1, 15), (15, 2), (16, 16), (37, 200), (299, 1)):
        part = draw(distribution, [9], first, count)
        assert np.array_equal(part, whole[1:, first : first + count])


def test_uniform_numbers_are_the_tables_and_below_one():
    assert np.array_equal(draw("uniform", [3], 0, COUNT)[0], table("uniform")[bits(3, 0, COUNT)])
    assert table("uniform").tolist() == [k / 65536 for k in range(65536)]


def test_normal_values_are_quantiles_of_variance_one():
    values = table("normal").astype(np.float64)
    assert (np.diff(values) > 0).all() and np.array_equal(values, -values[::-1])
    assert abs(np.mean(values**2) - 1) < 1e-7 and 4.32 < values.max() < 4.33
    quantiles = [NormalDist().inv_cdf((k + 0.5) / 65536) for k in range(65536)]
    np.testing.assert_allclose(values, quantiles, rtol=2e-5)


@pytest.mark.parametrize("seed", range(4))
def test_drawn_numbers_are_spread_as_they_should_be(seed):
    """Within five standard errors."""
    error = 5 / COUNT**0.5
    uniform, normal = (draw(name, [seed], 0, COUNT)[0].astype(np.float64) for name in ("uniform", "normal"))
    assert abs(uniform.mean() - 0.5) < error * 12**-0.5 and abs((uniform < 0.5).mean() - 0.5) < error / 2
    counts = np.bincount((uniform * 256).astype(int), minlength=256)
    chi_square = ((counts - COUNT / 256) ** 2).sum() / (COUNT / 256)
    assert abs(chi_square - 255) < 5 * (2 * 255) ** 0.5
    assert abs(normal.mean()) < error and abs(normal.var() - 1) < error * 2**0.5
    assert abs((normal**3).mean()) < error * 15**0.5 and abs((normal**4).mean() - 3) < error * 96**0.5
    for limit in (1, 2, 3, 4):
        share = 2 * NormalDist().cdf(-limit)
        assert abs((np.abs(normal) > limit).mean() - share) < error * share**0.5


def test_neighbours_and_seeds_are_uncorrelated():
    seeds = [0, 1, 2, 2**32, 2**63]
    drawn = draw("normal", seeds, 0, COUNT).astype(np.float64)
    limit = 5 / COUNT**0.5
    for lag in (1, 2, 3, 4, 8, 16, 256, 512):
        assert abs((drawn[:, lag:] * drawn[:, :-lag]).mean(axis=1)).max() < limit
    between = drawn @ drawn.T / COUNT
    assert np.abs(between - np.diag(np.diag(between))).max() < limit
