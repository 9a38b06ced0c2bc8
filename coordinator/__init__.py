"""The coordinator: adds up votes with noise under every party's budget and trains a student."""
