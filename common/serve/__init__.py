"""The speech server: OpenAI's audio API over HTTP, in front of one scheduler and few workers."""
