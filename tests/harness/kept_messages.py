"""Ends of a channel that are gone after so many messages, or that keep what arrives or is sent."""

from protocols.errors import ChannelClosed


class Breaking:
    """An end that is gone after so many messages, sent and received."""

    def __init__(self, end, left):
        self.end, self.left = end, left
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
        return self.end.recv(limit)


class Cut(Breaking):
    """A guardian's end that keeps what arrives, too."""

    def __init__(self, end, left, kept):
        super().__init__(end, left)
        self.kept = kept

    def recv(self, limit):
        self.kept.append(super().recv(limit))
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
