"""From utterances to samples: drivers' base classes, batches, streaming, warm-up."""
