"""Whether a vocoder's chunks join to the audio of the whole mel, as its receptive field promises."""

from __future__ import annotations

import numpy as np

from melforge.common.arrays import Array, to_numpy
from melforge.common.speech import Controls
from melforge.common.synthesis.chunks import FIRST_CHUNK, ChunkSizes
from melforge.common.synthesis.vocoder import Vocoder

# Of the whole's peak. In float32 the same sums in another order differ by some 1e-6; a receptive field that
# is too short gives a click at each seam, a hundredth and more.
CHUNK_TOLERANCE = 1e-4


def chunk_error(vocoder: Vocoder, mel: Array) -> float:
    """The largest difference of a mel's audio in chunks from that in one piece, as a part of the peak.

    mel [1, n_mels, T_mel], such as an acoustic model makes: repeated or cut to the length that shows it.
    Above CHUNK_TOLERANCE the model's `receptive_field` is too short. Its engines must compute in float32.
    """
    frames = min(2 * vocoder.context + 3 * FIRST_CHUNK, vocoder.longest_chunk)  # no chunk sees all of these
    repeats = -(-frames // mel.shape[2])
    mel = np.tile(to_numpy(mel), (1, 1, repeats))[:, :, :frames]
    plain = Controls(denoising_strength=0.0)
    (whole,) = vocoder.vocode_chunks(mel, ChunkSizes(frames, frames), plain)
    joined = np.concatenate(list(vocoder.vocode_chunks(mel, ChunkSizes(FIRST_CHUNK, frames), plain)))
    return float(np.abs(joined - whole).max() / max(np.abs(whole).max(), np.finfo(np.float32).tiny))
