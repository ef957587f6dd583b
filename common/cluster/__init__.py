"""Ray: tables of texts and the speech server on a cluster. Only what is called imports Ray."""
