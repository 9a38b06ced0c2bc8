"""Ends of a channel that keep what arrives, or what is sent; one of them is gone after so many messages."""

from protocols.errors import ChannelClosed


class Cut:
    """A guardian's end that keeps what arrives, and is gone after so many messages there and back."""

    def __init__(self, end, left, kept):
        self.end, self.left, self.kept = end, left, kept
        self.close = end.close

    def _step(self):
        self.left -= 1
        if self.left < 0:
            raise ChannelClosed("cut")

    def send(self, data):
        self._step()
        self.end.send(data)

    def recv(self, limit):
        self._step()
        self.kept.append(self.end.recv(limit))
        return self.kept[-1]


class Kept(Cut):
    """A coordinator's end that keeps what arrives."""

    def _step(self):
        pass


class Unready(Kept):
    """An end that is gone when the coordinator says that it evaluated the batch."""

    def recv(self, limit):
        data = super().recv(limit)
        if data == b"evaluated":
            self.kept.pop()
            raise ChannelClosed("cut")
        return data


class Sent:
    """An end that keeps what it sends in a list, which both ends of a channel may share."""

    def __init__(self, end, kept):
        self.end, self.kept = end, kept
        self.recv, self.close = end.recv, end.close

    def send(self, data):
        self.kept.append(bytes(data))
        self.end.send(data)
