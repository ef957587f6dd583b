"""What a machine with a GPU shows of TensorRT, against PyTorch on the same GPU: errors, speech, speed."""
