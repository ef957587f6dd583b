"""The transformers of FastPitch and FastSpeech on kernels of our own, in Triton."""
