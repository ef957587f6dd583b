"""What the training recipes share."""
