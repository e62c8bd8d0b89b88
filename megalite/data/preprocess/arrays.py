"""Objects that hold numpy arrays, through a pipe between two processes.

``Connection.send`` copies an array into a pickle, and ``recv`` copies that four times over. Here the pickle (of
protocol 5) goes without the arrays' contents, which follow straight from their memory and are read straight into new.
"""

import os
import pickle
from multiprocessing.connection import Connection
from typing import Any

import numpy as np


def send(connection: Connection, value: Any) -> None:
    """Send ``value``, which :func:`receive` returns at the other end."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    contents = [buffer.raw() for buffer in buffers]
    connection.send((pickled, [content.nbytes for content in contents]))
    for content in contents:
        while content:
            content = content[os.write(connection.fileno(), content) :]


def receive(connection: Connection) -> Any:
    """What :func:`send` sent. Raises EOFError when the other process has ended."""
    pickled, sizes = connection.recv()
    buffers = [np.empty(size, np.uint8) for size in sizes]
    for buffer in buffers:
        _fill(connection, memoryview(buffer))
    return pickle.loads(pickled, buffers=buffers)


def _fill(connection: Connection, target: memoryview) -> None:
    while target:
        count = os.readv(connection.fileno(), [target])
        if not count:
            raise EOFError("the other process ended while it sent")
        target = target[count:]
