"""What an operator watches: access log, logs, metrics, audit runs."""
