"""The coordinator: counts votes with noise within every party's budget, and trains a student."""
