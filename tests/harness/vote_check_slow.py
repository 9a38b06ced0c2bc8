"""The check of votes once more, in Python's integers, written from docs/explanation/vote-check.md and nothing else.

Arrays are nested lists, in the order of the page's indices.
"""

import hashlib

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

P, R = 2**31 - 1, 3


def H(label, *parts):
    said = b"".join(len(each).to_bytes(8, "little") + each for each in (b"conclave two_server", label.encode(), *parts))
    return hashlib.sha256(said).digest()


def expand(key, count):
    def words(key):
        stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
        while True:
            yield int.from_bytes(stream.update(bytes(4)), "little") % 2**31

    first, again = words(key), words(H("drawn again", key))
    numbers = [next(first) for _ in range(count)]
    while P in numbers:
        numbers = [next(again) if each == P else each for each in numbers]
    return numbers


def shaped(numbers, *shape):
    """The next numbers of an iterator, as nested lists."""
    if not shape:
        return next(numbers)
    return [shaped(numbers, *shape[1:]) for _ in range(shape[0])]


def flat(values):
    return [each for part in values for each in flat(part)] if isinstance(values, list) else [values]


def data(values):
    return b"".join(each.to_bytes(4, "little") for each in flat(values))


def cubic(left, right):
    powers = [0] * 5
    for i, x in enumerate(left):
        for j, y in enumerate(right):
            powers[i + j] += x * y
    return [(powers[0] + 7 * powers[3]) % P, (powers[1] + 7 * powers[4]) % P, powers[2] % P]


def added(left, right, sign=1):
    if isinstance(left, list):
        return [added(x, y, sign) for x, y in zip(left, right, strict=True)]
    return (left + sign * right) % P


def blinds(server, context, seed, queries):
    numbers = iter(expand(H(f"{server}'s blinds", context, seed), 2 * R * queries + 6))
    return shaped(numbers, R, queries), shaped(numbers, R, queries), shaped(numbers, 3), shaped(numbers, 3)


def guardian_share(context, seed, queries, classes):
    """v, u, B, m, a, A, f, h."""
    votes = shaped(iter(expand(H("guardian's votes", context, seed), queries * classes)), queries, classes)
    numbers = iter(expand(H("guardian's check", context, seed), R * queries * (classes + 1) + 3))
    rest = shaped(numbers, R, queries, classes), shaped(numbers, R, queries), shaped(numbers, 3)
    return (votes, *rest, *blinds("guardian", context, seed, queries))


def coordinator_share(context, g, c, votes, classes):
    """v, u, B, m of one voter; votes: a class per query, or -1."""
    queries = len(votes)
    masks, keyed, constants, product, *theirs = guardian_share(context, g, queries, classes)
    a, slopes, f, h = (added(*both) for both in zip(theirs, blinds("coordinator", context, c, queries), strict=True))
    k = added(slopes, added(a, a))
    v = [[int(vote == each) for each in range(classes)] for vote in votes]
    u = [[[k[j][q] * each % P for each in v[q]] for q in range(queries)] for j in range(R)]
    b = [[(a[j][q] ** 2 - a[j][q] * k[j][q]) % P for q in range(queries)] for j in range(R)]
    pairs = ((v, masks), (u, keyed), (b, constants), (cubic(f, h), product))
    return tuple(added(mine, other, -1) for mine, other in pairs)


class Server:
    """One server's part. shares: of each voter v, u, B, m, a, A, f, h."""

    def __init__(self, case, shares, secret, leads):
        self.case, self.shares, self.secret, self.leads = case, shares, secret, leads
        takes_part = case["takes_part"]
        voters, queries = len(takes_part), len(takes_part[0])
        bits = "".join(str(int(each)) for row in takes_part for each in row)
        packed = bytes(int(bits[at : at + 8].ljust(8, "0"), 2) for at in range(0, len(bits), 8))
        sizes = b"".join(each.to_bytes(8, "little") for each in (voters, queries, case["classes"], case["abstention"]))
        self.context = bytes.fromhex(case["context"])
        self.ballots = H("ballots", sizes, packed, self.context)
        self.number = H("number", secret, self.context)
        self.factors = shaped(iter(expand(H("blinding", secret, self.ballots), 3 * voters)), voters, 3)

    def salt(self, step):
        return H("salt", self.secret, step.encode(), self.ballots)

    def commitment(self, step, said):
        return H("commitment", step.encode(), self.ballots, self.salt(step), said)

    def begin(self, coin):
        queries, classes = len(self.case["takes_part"][0]), self.case["classes"]
        self.r = shaped(iter(expand(H("points", coin), queries * classes * R)), queries, classes, R)
        self.rho, sigma = shaped(iter(expand(H("factors", coin), 2 * R * queries)), 2, R, queries)
        self.sigma = [[0] * queries] * R if self.case["abstention"] else sigma

    def z(self):
        return [
            [
                [(sum(x * r[j] for x, r in zip(v[q], self.r[q], strict=True)) + a[j][q]) % P for q in range(len(v))]
                for j in range(R)
            ]
            for v, _, _, _, a, *_ in self.shares
        ]

    def x(self, z, voter, j):
        v, u, b, _, _, slopes, _, _ = self.shares[voter]
        total = 0
        for q, takes_part in enumerate(self.case["takes_part"][voter]):
            if not takes_part:
                continue
            value = z[voter][j][q]
            term = slopes[j][q] * value + b[j][q]
            for each, keyed, r in zip(v[q], u[j][q], self.r[q], strict=True):
                term -= r[j] ** 2 * each + r[j] * keyed
            total += self.rho[j][q] * term + self.sigma[j][q] * sum(v[q])
            if self.leads:
                total += self.rho[j][q] * value**2 - self.sigma[j][q]
        return total % P

    def d(self, z):
        voters = range(len(self.shares))
        results = [[self.x(z, voter, j) for j in range(R)] for voter in voters]
        f, h = ([share[at] for share in self.shares] for at in (6, 7))
        return [added(self.factors, f, -1), added(results, h, -1)]

    def o(self, d):
        found = []
        for share, factor, result in zip(self.shares, *d, strict=True):
            _, _, _, m, _, _, f, h = share
            terms = added(added(cubic(factor, h), cubic(result, f)), m)
            found.append(added(terms, cubic(factor, result)) if self.leads else terms)
        return found


def checked(case, coordinators, guardians):
    """(the nine messages, the verdicts). coordinators, guardians: the shares of each voter, of eight parts."""
    mine = Server(case, coordinators, bytes.fromhex(case["secrets"][0]), True)
    theirs = Server(case, guardians, bytes.fromhex(case["secrets"][1]), False)
    coin = H("challenge", mine.context, mine.number, theirs.number)
    mine.begin(coin)
    theirs.begin(coin)
    messages = [mine.ballots + mine.commitment("number", mine.number), theirs.ballots + theirs.number]
    said, values = mine.number, (mine.z(), theirs.z())
    steps = [("number", "blinded sums"), ("blinded sums", "masked results"), ("masked results", "tests")]
    for (before, step), following in zip(steps, ("d", "o", ""), strict=True):
        messages.append(said + mine.salt(before) + mine.commitment(step, data(values[0])))
        messages.append(data(values[1]))
        said, total = data(values[0]), added(*values)
        if following:
            values = tuple(getattr(server, following)(total) for server in (mine, theirs))
    messages.append(said + mine.salt("tests"))
    return messages, [not any(each) for each in total]
