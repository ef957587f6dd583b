"""Audio: the mel contract, mel spectrograms, sound files, the denoiser."""
