"""The pitch of vocoders with a harmonic source, and convolutions that their generators use too."""
