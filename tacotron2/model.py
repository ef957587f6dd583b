"""Tacotron 2: text to mel, autoregressive with attention over the text (arXiv 1712.05884).

Parameter names are those of the published checkpoints.
Shape letters: B batch, N symbols, T mel frames, S decoder steps, C channels, P prenet channels,
F values of a step (n_mels for each of its frames).
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from melforge.common.arrays import length_mask
from melforge.tacotron2.config import PRENET_DROPOUT, PRENET_LAYERS, STOP_CHECK_STEPS, Tacotron2Config

# The attention score of padded symbols: far below any score, but within the range of float16.
MASKED_SCORE = -6e4
# The gate logit behind an item's end with `mask_padding`: a certain stop.
MASKED_GATE = 1e3


class DecoderState(NamedTuple):
    """The recurrent state of the decoder; all zeros before the first step."""

    frame: Tensor  # (B, F) the last mel frame
    attention_hidden: Tensor  # (B, attention_rnn_dim)
    attention_cell: Tensor
    decoder_hidden: Tensor  # (B, decoder_rnn_dim)
    decoder_cell: Tensor
    attention_weights: Tensor  # (B, N)
    attention_cumulative: Tensor  # (B, N) sum over all steps so far
    attention_context: Tensor  # (B, C)


class Tacotron2Synthesis(NamedTuple):
    """What `infer` returns. Frames behind an item's length are valid numbers without meaning."""

    mel: Tensor  # (B, n_mels, T) after the postnet
    mel_lengths: Tensor  # (B,) without the frame at which the gate fired
    alignment: Tensor  # (B, S, the longest text)
    gate: Tensor  # (B, S) logits
    stopped: Tensor  # (B,) False: the item reached the step limit
    mel_before_postnet: Tensor  # (B, n_mels, T)


class Tacotron2Prediction(NamedTuple):
    """What the teacher-forced forward returns."""

    mel_before_postnet: Tensor  # (B, n_mels, T)
    mel: Tensor  # (B, n_mels, T)
    gate: Tensor  # (B, S) logits
    alignment: Tensor  # (B, S, N)


class NamedLinear(nn.Module):
    """A linear layer under its published parameter names."""

    def __init__(self, in_channels: int, out_channels: int, bias: bool = True):
        super().__init__()
        self.linear_layer = nn.Linear(in_channels, out_channels, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_layer(x)


class NamedConv(nn.Module):
    """A length-preserving convolution under its published parameter names."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, bias: bool = True):
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


def conv_norm(in_channels: int, out_channels: int, kernel_size: int) -> nn.Sequential:
    return nn.Sequential(NamedConv(in_channels, out_channels, kernel_size), nn.BatchNorm1d(out_channels))


class Encoder(nn.Module):
    """Convolutions, then a bidirectional LSTM."""

    def __init__(self, config: Tacotron2Config):
        super().__init__()
        channels = config.encoder_embedding_dim
        self.convolutions = nn.ModuleList(
            conv_norm(channels, channels, config.encoder_kernel_size)
            for _ in range(config.encoder_n_convolutions)
        )
        self.lstm = nn.LSTM(channels, channels // 2, batch_first=True, bidirectional=True)
        self.mask_text_padding = config.mask_text_padding
        self.mask_behind_longest = False  # in a network that does not mask padding: behind the longest item
        self.p_dropout = config.p_convolution_dropout

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x (B, C, N) -> (B, N, C), zeros behind the lengths."""
        mask = length_mask(lengths, x.size(2))
        inside = mask if self.mask_text_padding else length_mask(lengths.amax()[None], x.size(2))
        masks = self.mask_text_padding or self.mask_behind_longest
        for convolution in self.convolutions:
            x = x * inside[:, None] if masks else x
            x = F.dropout(F.relu(convolution(x)), self.p_dropout, self.training)
        x = x.transpose(1, 2)
        # Each item is reversed within its own length, as packed sequences do, which cannot be exported.
        positions = torch.arange(x.size(1), device=x.device)
        turned = torch.where(mask, lengths[:, None] - 1 - positions, positions)[:, :, None]
        ahead = self._run(x, "")
        back = self._run(x.gather(1, turned.expand(-1, -1, x.size(2))), "_reverse")
        back = back.gather(1, turned.expand(-1, -1, back.size(2)))
        return torch.cat([ahead, back], dim=2) * mask[:, :, None]

    def _run(self, x: Tensor, direction: str) -> Tensor:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        weights = [getattr(self.lstm, f"{name}_l0{direction}") for name in names]
        start = x.new_zeros(1, x.size(0), self.lstm.hidden_size)
        return torch.lstm(x, (start, start), weights, True, 1, 0.0, self.training, False, True)[0]


class Prenet(nn.Module):
    def __init__(self, config: Tacotron2Config):
        super().__init__()
        sizes = [config.frame_size] + [config.prenet_dim] * PRENET_LAYERS
        self.layers = nn.ModuleList(NamedLinear(n_in, n_out, bias=False) for n_in, n_out in pairwise(sizes))

    def forward(self, x: Tensor, noise: Tensor | None, dropout: Tensor | float = PRENET_DROPOUT) -> Tensor:
        """x (..., F), noise (2, ..., P) uniform in [0, 1): values below `dropout` drop their channel."""
        for i, layer in enumerate(self.layers):
            x = F.relu(layer(x))
            if noise is not None:
                x = x * (noise[i] >= dropout).to(x.dtype) / (1 - dropout)
        return x


class LocationLayer(nn.Module):
    """Location features: of the last attention weights and of the cumulative ones."""

    def __init__(self, config: Tacotron2Config):
        super().__init__()
        filters = config.attention_location_n_filters
        self.location_conv = NamedConv(2, filters, config.attention_location_kernel_size, bias=False)
        self.location_dense = NamedLinear(filters, config.attention_dim, bias=False)

    def forward(self, weights: Tensor, cumulative: Tensor) -> Tensor:
        seen = self.location_conv(torch.stack([weights, cumulative], dim=1))
        return self.location_dense(seen.transpose(1, 2))  # (B, N, attention_dim)


class Attention(nn.Module):
    """Location-sensitive attention (arXiv 1506.07503)."""

    def __init__(self, config: Tacotron2Config):
        super().__init__()
        channels = config.attention_dim
        self.query_layer = NamedLinear(config.attention_rnn_dim, channels, bias=False)
        self.memory_layer = NamedLinear(config.encoder_embedding_dim, channels, bias=False)
        self.v = NamedLinear(channels, 1, bias=False)
        self.location_layer = LocationLayer(config)

    def forward(
        self,
        query: Tensor,
        memory: Tensor,
        processed_memory: Tensor,
        mask: Tensor,
        weights: Tensor,
        cumulative: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """-> context (B, C), weights (B, N)."""
        location = self.location_layer(weights, cumulative)
        scores = self.v(torch.tanh(self.query_layer(query)[:, None] + location + processed_memory))
        weights = torch.softmax(scores.squeeze(2).masked_fill(~mask, MASKED_SCORE), dim=1)
        return torch.bmm(weights[:, None], memory).squeeze(1), weights


class Decoder(nn.Module):
    def __init__(self, config: Tacotron2Config):
        super().__init__()
        self.p_attention_dropout = config.p_attention_dropout
        self.p_decoder_dropout = config.p_decoder_dropout
        context, attention = config.encoder_embedding_dim, config.attention_rnn_dim
        hidden = config.decoder_rnn_dim
        self.prenet = Prenet(config)
        self.attention_rnn = nn.LSTMCell(config.prenet_dim + context, attention)
        self.attention_layer = Attention(config)
        self.decoder_rnn = nn.LSTMCell(attention + context, hidden)
        self.linear_projection = NamedLinear(hidden + context, config.frame_size)
        self.gate_layer = NamedLinear(hidden + context, 1)

    def forward(
        self, frame: Tensor, memory: Tensor, processed_memory: Tensor, mask: Tensor, state: DecoderState
    ) -> tuple[Tensor, DecoderState]:
        """One step from a frame that has passed the prenet (B, P): -> gate logit (B,), the next state."""
        state = self._attend(frame, memory, processed_memory, mask, state)
        attended, context = state.attention_hidden, state.attention_context
        hidden, cell = self._decoder_cell(
            torch.cat([attended, context], dim=1), (state.decoder_hidden, state.decoder_cell)
        )
        frame, gate = self._shown(torch.cat([hidden, context], dim=1))
        return gate, state._replace(frame=frame, decoder_hidden=hidden, decoder_cell=cell)

    def teach(
        self, frames: Tensor, memory: Tensor, processed_memory: Tensor, mask: Tensor, state: DecoderState
    ) -> tuple[Tensor, Tensor, Tensor]:
        """All steps from known frames that have passed the prenet (S, B, P): -> frames (S, B, F), gate logits
        (S, B) and alignment (S, B, N).

        Attention sees nothing of the decoder's own LSTM, which so is computed for all steps at once.
        """
        steps = []
        for frame in frames:
            state = self._attend(frame, memory, processed_memory, mask, state)
            steps.append((state.attention_hidden, state.attention_context, state.attention_weights))
        attended, context, weights = map(torch.stack, zip(*steps, strict=True))
        hidden = self._decoder_steps(torch.cat([attended, context], dim=2), state)
        shown, gate = self._shown(torch.cat([hidden, context], dim=2))
        return shown, gate, weights

    def _attend(
        self, frame: Tensor, memory: Tensor, processed_memory: Tensor, mask: Tensor, state: DecoderState
    ) -> DecoderState:
        """The state with the next step's attention."""
        hidden, cell = self.attention_rnn(
            torch.cat([frame, state.attention_context], dim=1), (state.attention_hidden, state.attention_cell)
        )
        hidden = F.dropout(hidden, self.p_attention_dropout, self.training)
        attended = (state.attention_weights, state.attention_cumulative)
        context, weights = self.attention_layer(hidden, memory, processed_memory, mask, *attended)
        return state._replace(
            attention_hidden=hidden,
            attention_cell=cell,
            attention_context=context,
            attention_weights=weights,
            attention_cumulative=state.attention_cumulative + weights,
        )

    def _decoder_cell(self, x: Tensor, cells: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """A step of the decoder's LSTM: its next hidden state, with dropout, and cell."""
        hidden, cell = self.decoder_rnn(x, cells)
        return F.dropout(hidden, self.p_decoder_dropout, self.training), cell

    def _decoder_steps(self, x: Tensor, state: DecoderState) -> Tensor:
        """x (S, B, I) -> hidden states (S, B, H); with dropout, which the next step sees, in single steps."""
        cells = state.decoder_hidden, state.decoder_cell
        if self.training and self.p_decoder_dropout:
            hiddens = []
            for one in x:
                cells = self._decoder_cell(one, cells)
                hiddens.append(cells[0])
            return torch.stack(hiddens)
        rnn = self.decoder_rnn
        weights = [rnn.weight_ih, rnn.weight_hh, rnn.bias_ih, rnn.bias_hh]
        start = [cell[None] for cell in cells]
        return torch.lstm(x, start, weights, True, 1, 0.0, self.training, False, False)[0]

    def _shown(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states with contexts (..., H + C) -> frames (..., F), gate logits (...)."""
        return self.linear_projection(x), self.gate_layer(x).squeeze(-1)


class Postnet(nn.Module):
    def __init__(self, config: Tacotron2Config):
        super().__init__()
        hidden = [config.postnet_embedding_dim] * (config.postnet_n_convolutions - 1)
        sizes = [config.n_mel_channels, *hidden, config.n_mel_channels]
        self.p_dropout = config.p_convolution_dropout
        self.convolutions = nn.ModuleList(
            conv_norm(n_in, n_out, config.postnet_kernel_size) for n_in, n_out in pairwise(sizes)
        )

    def forward(self, mel: Tensor, lengths: Tensor | None = None) -> Tensor:
        """mel (B, n_mels, T); `lengths` (B,) masks the frames behind an item's end."""
        mask = None if lengths is None else length_mask(lengths, mel.size(2))[:, None]
        *first, last = self.convolutions
        x = mel if mask is None else mel * mask
        for convolution in first:
            x = F.dropout(torch.tanh(convolution(x)), self.p_dropout, self.training)
            x = x if mask is None else x * mask
        return mel + F.dropout(last(x), self.p_dropout, self.training)


class Tacotron2(nn.Module):
    """The published network: stages `encode`, `decode_step`, `decode_loop`, `refine`; `forward` for training.

    The prenet's dropout is on at inference too. Its noise is always an input, uniform in [0, 1), so that a
    seed gives the same speech on every backend; None switches the dropout off.
    """

    def __init__(self, config: Tacotron2Config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.n_symbols, config.symbols_embedding_dim)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.postnet = Postnet(config)

    def encode(self, symbols: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Stage "encoder": symbols (B, N) -> memory (B, N, C), processed_memory (B, N, attention_dim)."""
        memory = self.encoder(self.embedding(symbols).transpose(1, 2), lengths)
        return memory, self.decoder.attention_layer.memory_layer(memory)

    def decode_step(
        self,
        memory: Tensor,
        processed_memory: Tensor,
        lengths: Tensor,
        frame: Tensor,
        attention_hidden: Tensor,
        attention_cell: Tensor,
        decoder_hidden: Tensor,
        decoder_cell: Tensor,
        attention_weights: Tensor,
        attention_cumulative: Tensor,
        attention_context: Tensor,
        prenet_noise: Tensor | None = None,
        prenet_dropout: Tensor | float = PRENET_DROPOUT,
    ) -> tuple[Tensor, ...]:
        """Stage "decoder_iter": one step, noise (2, B, P) -> gate logit (B,) and DecoderState's fields."""
        cells = (attention_hidden, attention_cell, decoder_hidden, decoder_cell)
        state = DecoderState(frame, *cells, attention_weights, attention_cumulative, attention_context)
        mask = length_mask(lengths, memory.size(1))
        shown = self.decoder.prenet(frame, prenet_noise, prenet_dropout)
        gate, state = self.decoder(shown, memory, processed_memory, mask, state)
        return gate, *state

    def decode_steps(
        self,
        memory: Tensor,
        processed_memory: Tensor,
        lengths: Tensor,
        prenet_noise: Tensor,
        prenet_dropout: Tensor | float,
        *state: Tensor,
    ) -> tuple[Tensor, ...]:
        """Steps of "decoder_iter", one for each row of the noise (S, 2, B, P).

        -> frames (B, S, F), gate logits (B, S), alignment (B, S, N), and DecoderState's fields behind them.
        """
        step: Callable[..., tuple[Tensor, ...]] = self.decode_step
        rows = []
        for noise in prenet_noise:
            gate, *after = step(memory, processed_memory, lengths, *state, noise, prenet_dropout)
            state = DecoderState(*after)
            rows.append((state.frame, gate, state.attention_weights))
        return (*(torch.stack(each, 1) for each in zip(*rows, strict=True)), *state)

    def decode_loop(
        self,
        memory: Tensor,
        processed_memory: Tensor,
        lengths: Tensor,
        prenet_noise: Tensor,
        prenet_dropout: Tensor | float,
        gate_threshold: Tensor | float,
        run_steps: Callable[..., tuple[Tensor, ...]] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Stage "decoder_loop": steps until every gate has fired, at most as many as noise (S, 2, B, P).

        -> mel before the postnet (B, n_mels, T), its lengths (B,) without the step at which the gate fired,
        gate logits (B, S), alignment (B, S, N), stopped (B,) bool: False where the noise ended first.
        A stopped item is computed further with the others; its length tells which frames are valid.
        `run_steps` gives what `decode_steps` gives.
        """
        # Reading the gates synchronises host and GPU; on a CPU it costs nothing.
        check_every = 1 if memory.device.type == "cpu" else STOP_CHECK_STEPS
        early = not self.config.decoder_no_early_stopping
        run_steps = run_steps or self.decode_steps
        state: Iterable[Tensor] = self.initial_state(memory)
        going = torch.ones_like(lengths, dtype=torch.bool)
        steps = torch.zeros_like(lengths)
        blocks = []
        for noise in prenet_noise.split(check_every):
            outputs = run_steps(memory, processed_memory, lengths, noise, prenet_dropout, *state)
            rows, state = outputs[:3], outputs[3:]
            blocks.append(rows)
            for gate in rows[1].unbind(1):
                going = going & (gate.sigmoid() <= gate_threshold)
                steps = steps + going
            if early and not going.any():
                break
        frames, gates, alignment = (torch.cat(each, 1) for each in zip(*blocks, strict=True))
        if early:  # cut the steps behind the last stop
            made = min(frames.size(1), int(steps.max()) + 1)
            frames, gates, alignment = frames[:, :made], gates[:, :made], alignment[:, :made]
        return self._join(frames), steps * self.config.n_frames_per_step, gates, alignment, ~going

    def refine(self, mel: Tensor, lengths: Tensor | None = None) -> tuple[Tensor]:
        """Stage "postnet": mel (B, n_mels, T) -> mel; `mask_text_padding` takes `lengths` (B,) too."""
        return (self.postnet(mel, lengths),)

    def initial_state(self, memory: Tensor) -> DecoderState:
        """The state before the first step."""
        config, (batch, n_symbols, _) = self.config, memory.shape
        cells = [config.attention_rnn_dim] * 2 + [config.decoder_rnn_dim] * 2
        sizes = (config.frame_size, *cells, n_symbols, n_symbols, config.encoder_embedding_dim)
        return DecoderState(*(memory.new_zeros(batch, size) for size in sizes))

    @torch.no_grad()
    def infer(
        self,
        symbols: Tensor,
        lengths: Tensor | None = None,
        *,
        prenet_noise: Tensor | None = None,
        gate_threshold: float | None = None,
        max_steps: int | None = None,
    ) -> Tacotron2Synthesis:
        """Text to mel: steps until every item's gate has fired, or the limit.

        `prenet_noise` (S, 2, B, P) has a row for every possible step; a bool tensor is used as the dropout
        mask. An item stops where sigmoid(gate) > `gate_threshold`. Defaults are the config's.
        """
        if lengths is None:
            lengths = torch.full_like(symbols[:, 0], symbols.size(1)) if symbols.numel() else symbols.sum(1)
        threshold = self.config.gate_threshold if gate_threshold is None else gate_threshold
        limit = self.config.max_decoder_steps if max_steps is None else max_steps
        self._check_inputs(symbols, lengths, prenet_noise, limit)
        # Symbols behind the longest item are in the encoder's receptive field, but not in the alignment.
        longest = int(lengths.max())
        memory, processed_memory = (x[:, :longest] for x in self.encode(symbols, lengths))
        dropout = 0.0 if prenet_noise is None else PRENET_DROPOUT
        if prenet_noise is None:
            prenet_noise = memory.new_zeros(limit, PRENET_LAYERS, len(symbols), self.config.prenet_dim)
        mel, mel_lengths, gate, alignment, stopped = self.decode_loop(
            memory, processed_memory, lengths, prenet_noise[:limit].to(memory.dtype), dropout, threshold
        )
        return Tacotron2Synthesis(self.postnet(mel), mel_lengths, alignment, gate, stopped, mel)

    def forward(
        self,
        symbols: Tensor,
        lengths: Tensor,
        mel: Tensor,
        mel_lengths: Tensor,
        prenet_noise: Tensor | None = None,
    ) -> Tacotron2Prediction:
        """Teacher forcing: every step's input is the true previous frame of mel (B, n_mels, T).

        `prenet_noise` (2, S, B, P) may have one more row, for the last frame, which is no step's input.
        """
        memory, processed_memory = self.encode(symbols, lengths)
        state = self.initial_state(memory)
        steps = mel.size(2) // self.config.n_frames_per_step
        given = mel.transpose(1, 2).unflatten(1, (steps, -1)).flatten(2).transpose(0, 1)  # (S, B, F)
        given = torch.cat([state.frame[None], given[:-1]])
        noise = None if prenet_noise is None else prenet_noise[:, :steps].to(mel.dtype)
        shown = self.decoder.prenet(given, noise)
        mask = length_mask(lengths, symbols.size(1))
        frames, gates, alignment = self.decoder.teach(shown, memory, processed_memory, mask, state)
        before, gate = self._join(frames.transpose(0, 1)), gates.T
        after = self.postnet(before)
        if self.config.mask_padding:
            padded = ~length_mask(mel_lengths, mel.size(2))
            before, after = (x.masked_fill(padded[:, None], 0.0) for x in (before, after))
            gate = gate.masked_fill(padded[:, :: self.config.n_frames_per_step], MASKED_GATE)
        return Tacotron2Prediction(before, after, gate, alignment.transpose(0, 1))

    def _join(self, frames: Tensor) -> Tensor:
        """Steps' values (B, S, F) -> mel (B, n_mels, T)."""
        return frames.unflatten(2, (-1, self.config.n_mel_channels)).flatten(1, 2).mT

    def _check_inputs(self, symbols: Tensor, lengths: Tensor, noise: Tensor | None, limit: int) -> None:
        batch, n_symbols = symbols.shape
        if limit < 1:
            raise ValueError(f"max_steps is {limit}: at least one step is needed")
        if lengths.shape != (batch,):
            raise ValueError(f"lengths {tuple(lengths.shape)} do not belong to {batch} texts")
        if not batch or int(lengths.min()) < 1 or int(lengths.max()) > n_symbols:
            raise ValueError(
                f"lengths {lengths.tolist()} must lie between 1 and {n_symbols}, the padded length"
            )
        wanted = (PRENET_LAYERS, batch, self.config.prenet_dim)
        if noise is not None and (noise.shape[1:] != wanted or len(noise) < limit):
            raise ValueError(f"prenet_noise {tuple(noise.shape)} must be {(limit, *wanted)}: (S, 2, B, P)")
