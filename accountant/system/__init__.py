"""What the operating system gives: files, processors, sockets, traces, and modules that are loaded late."""
