"""Making and labelling a training corpus in LJSpeech's folder format (extra: train)."""
