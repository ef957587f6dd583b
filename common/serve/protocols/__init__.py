"""What programs ask the server by: OpenAI's HTTP and realtime events, NVIDIA's, Wyoming, MCP."""
