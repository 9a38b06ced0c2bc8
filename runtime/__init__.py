"""What every program needs to run: files, logs, metrics, signals, commands."""
