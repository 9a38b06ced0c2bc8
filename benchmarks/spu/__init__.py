"""Two-party inference with SecretFlow SPU, in an environment of its own."""
