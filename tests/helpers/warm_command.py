"""What takes the place of a command that is a fork of the warm process (warm.py): `warm_command.py SOCKET ARGUMENTS`.

It starts as often as all commands of the tests together, so it imports next to nothing.
"""

import marshal
import os
import signal
import socket
import sys

STREAMS = (0, 1, 2)
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def begun(place: str, arguments: list[str], folder: str, environment: dict[str, str], streams: tuple[int, ...]):
    """What comes of it, as a file: a line with the fork's number, and once it ended a line with its wait status."""
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(place)
        asked = marshal.dumps((arguments, folder, environment))
        socket.send_fds(door, [len(asked).to_bytes(4, "big")], streams)
        door.sendall(asked)
        return door.makefile("rb", buffering=0)  # what is there and not yet read is seen by select


def ask(place: str, arguments: list[str]) -> int:
    """Have the arguments run; the wait status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until it is known to whom
    with begun(place, arguments, os.getcwd(), dict(os.environ), STREAMS) as answers:
        pid = int(answers.readline())

        def pass_on(number: int, frame: object) -> None:
            try:  # noqa: SIM105  contextlib takes as long to import as all of this
                os.kill(pid, number)
            except ProcessLookupError:
                pass

        for number in PASSED_ON:
            signal.signal(number, pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        return int(answers.readline())


def end_as(status: int) -> None:
    """End this process in the way that the other ended."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    end_as(ask(sys.argv[1], sys.argv[2:]))
