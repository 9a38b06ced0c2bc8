"""Runs parties under Flower's simulation runtime, in Ray actors. All of flwr and ray is in this file.

**Few virtual nodes, many parties each.** Party number i belongs to virtual node i modulo the number of nodes;
a node's requests travel in one message. Flower draws node ids at random, so they only serve to carry messages.

**Hosts.** Any actor may get a message for any node, so a Host must find a party's state by its own arguments
(on disk, cached in memory) and cannot count on having seen the party before. Each actor opens a Host once.

**One actor per core, one thread each**; on a machine with a CUDA device one actor, which has it to itself.

**Several machines.** With RAY_ADDRESS in the environment the run joins that Ray cluster and has one actor for
each of its cores (for each CUDA device if it has any). Every machine needs the same installation at the same
path, and so does whatever folder the HostSpec's arguments name: a shared folder. `workers` must then be None.

**No process is left behind.** If the caller is killed outright, two agents of Ray live on for about a minute.

**Where body runs.** Flower calls a ServerApp in a thread of its own. That thread lends its Grid to the thread
that called `run`, so that body keeps its open databases, its context variables and its Ctrl-C.

`run_simulation` shuts Ray down when it returns, so each run starts Ray afresh; it is deprecated in favour of
`flwr run`. Flower serves at most min(32, cores of the calling machine + 4) messages at a time.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import queue
import re
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from protocols.errors import ConclaveError, EngineFailed, InvalidInput
from protocols.reading import parse_json
from simulations.engines.engine import (
    Engine,
    Exchange,
    HostSpec,
    OnReply,
    Replies,
    WorkerHost,
    check_asked,
    check_parties,
    check_workers,
    count_workers,
    describe_error,
    end_all,
    gpu_present,
    in_worker_environment,
    lean,
    logged_to,
    rebuild_error,
    worker_environment,
)

# Read when the packages are imported, so that nothing calls home, looks for updates or installs anything.
os.environ.update(
    FLWR_TELEMETRY_ENABLED="0",
    FLWR_DISABLE_UPDATE_CHECK="1",
    FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION="1",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",  # the future behaviour; without it Ray warns about it
    GRPC_ENABLE_FORK_SUPPORT="0",  # what is forked runs another program; else gRPC prints of each fork
)
with warnings.catch_warnings():
    # Both use deprecated parts of other packages, and Flower's Ray backend changes the warning filters.
    warnings.simplefilter("ignore")
    import flwr.server.superlink.fleet.vce.backend.raybackend  # noqa: F401  changes filters when imported
    import ray
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation
    from ray.experimental import internal_kv

T = TypeVar("T")

_NODES_PER_CORE = 16  # evens out slow shards and shows progress; against 4 it cost 10 ms per exchange
_NODES_PER_DEVICE = 4  # fewer on a CUDA device, so that many parties' teachers can be stacked
_NODES = 64  # at most, unless there are more actors: what an exchange costs grows with their square
_OBJECT_STORE_BYTES = 256 * 2**20  # what does not fit in it spills to disk
_MESSAGE_LIFETIME_S = 30 * 86400.0  # Flower's own 12 hours would cut a long training stage off
_POLL_S = 0.01
_WATCH_S = 0.5
_GONE_WITHIN_S = 10.0
# Flower's words for an actor, a worker or a host that is gone, and not for what a host's code raised.
_LOST = re.compile(r"<class 'ray\.exceptions\.(?!RayTaskError)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Flower(Engine):
    """Flower on Ray. `workers`: actors on this machine; `log`: the file for log lines of Flower and Ray."""

    def __init__(self, *, workers: int | None = None, log: Path | None = None) -> None:
        self._workers = check_workers(workers)
        self._log = log
        if workers is not None and os.environ.get("RAY_ADDRESS"):
            raise InvalidInput(f"workers is {workers}; allowed with RAY_ADDRESS: none, the cluster decides")

    def run(self, host: HostSpec, parties: Sequence[str], body: Callable[[Exchange], T]) -> T:
        """Engine.run; body is called in the caller's own thread."""
        names = check_parties(parties)
        with _quiet(self._log), ExitStack() as held:

            def start() -> _Simulation:
                held.close()
                simulation = _Simulation(len(names), held.enter_context(_ray(self._workers, len(names))))
                held.callback(simulation.stop)
                return simulation

            return body(_FlowerExchange(start, host, names))


class _HostLost(Exception):
    """An actor died, and with it what it was asked."""


class _FlowerExchange:
    """The exchange of one run: one message for each virtual node that has a party among those asked.

    start: starts the simulation, or starts it anew with the hosts of the cluster that are left.
    """

    def __init__(self, start: Callable[[], _Simulation], host: HostSpec, parties: Sequence[str]) -> None:
        self._start = start
        self._host = json.dumps(asdict(host))
        self._parties = parties
        self._begin()
        # Of this machine alone, an actor that dies would die again.
        self._may_lose = _hosts() - 1

    def _begin(self) -> None:
        self._simulation = self._start()
        nodes = self._simulation.nodes()
        self._node = {party: nodes[index % len(nodes)] for index, party in enumerate(self._parties)}

    def __call__(self, requests: Mapping[str, bytes], on_reply: OnReply | None = None) -> dict[str, bytes | None]:
        check_asked(requests, self._node)
        replies = Replies(requests, on_reply)
        while True:
            try:
                self._ask({party: requests[party] for party in replies.missing()}, replies)
                return replies.complete()
            except _HostLost as lost:
                if not self._may_lose:
                    raise EngineFailed(_advice(str(lost))) from None
                self._may_lose -= 1
                logging.getLogger("ray").warning("a host is lost, and the run continues with the others: %s", lost)
                self._begin()

    def _ask(self, requests: Mapping[str, bytes], replies: Replies) -> None:
        shards: dict[int, ConfigRecord] = {}
        for party, request in requests.items():
            shards.setdefault(self._node[party], ConfigRecord())[party] = request
        messages = [
            Message(
                RecordDict({"host": ConfigRecord({"spec": self._host}), "requests": shard}),
                dst_node_id=node,
                message_type="query",
                ttl=_MESSAGE_LIFETIME_S,
            )
            for node, shard in shards.items()
        ]
        for reply in self._simulation.replies(messages):
            if reply.has_error():
                reason = _COLOUR.sub("", reply.error.reason or "no reason given")
                if _LOST.match(reason):
                    raise _HostLost(reason)
                raise EngineFailed(f"a Flower actor failed (error code {reply.error.code}): {reason}")
            if "error" in reply.content:
                raise rebuild_error({key: str(value) for key, value in reply.content["error"].items()})
            answers: dict[str, Any] = dict(reply.content["answers"])  # Any: as _answer filled it
            for party, answer in zip(answers["parties"], answers["replies"], strict=True):
                replies.add(party, answer)


def _hosts() -> int:
    """How many hosts the Ray cluster has now."""
    return sum(bool(node["Alive"]) for node in ray.nodes())  # type: ignore[no-untyped-call]  # Ray's own gap


def _advice(reason: str) -> str:
    """What a person is told of an actor that died. reason: Ray's own, of which the first line says what happened."""
    again = "what was trained is kept: run the same command again"
    if os.environ.get("RAY_ADDRESS"):
        again = f"no other host is left; `ray status` lists them; {again}"
    return f"a worker ended ({reason.partition(chr(10))[0][:200]}); is memory short? {again}"


@dataclass(frozen=True)
class _Actors:
    """How many Ray actors there are, and the share of a CUDA device that each has beside its one core."""

    number: int
    num_gpus: float

    def nodes(self) -> int:
        """How many virtual nodes suit them."""
        each = _NODES_PER_DEVICE if self.num_gpus else _NODES_PER_CORE
        return max(self.number, min(each * self.number, _NODES))


class _Simulation:
    """Flower's run_simulation in its own thread, and the Grid that its ServerApp lends until `stop`."""

    def __init__(self, parties: int, actors: _Actors) -> None:
        self._actors = actors
        self._number_of_nodes = min(parties, actors.nodes())
        self._lent: queue.SimpleQueue[Grid] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._unanswered: set[str] = set()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._simulate, name="flower-simulation")
        self._thread.start()
        try:
            self._grid = self._wait_for_grid()
        except BaseException:
            self.stop()
            raise

    def nodes(self) -> list[int]:
        """The ids of the virtual nodes, of which there are as many as asked for."""
        while len(nodes := sorted(self._grid.get_node_ids())) < self._number_of_nodes:
            self._check()
            time.sleep(_POLL_S)
        return nodes

    def replies(self, messages: list[Message]) -> Iterator[Message]:
        """Sends the messages, yields their replies as they come in. Raises EngineFailed if Flower stops."""
        pending = set(self._grid.push_messages(messages))
        if len(pending) < len(messages):
            raise EngineFailed(f"Flower took {len(pending)} of {len(messages)} messages")
        self._unanswered |= pending
        while pending:
            for reply in self._grid.pull_messages(pending):
                pending.discard(reply.metadata.reply_to_message_id)
                self._unanswered.discard(reply.metadata.reply_to_message_id)
                yield reply
            self._check()
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """Ends the simulation and with it Ray; actors that are still working are told to end."""
        if self._unanswered and ray.is_initialized():
            internal_kv._internal_kv_put(_stop_key(), b"1")
        self._stopped.set()
        self._thread.join()

    def _simulate(self) -> None:
        server, client = ServerApp(), ClientApp()
        client.query()(_answer)

        @server.main()
        def lend_grid(grid: Grid, context: Context) -> None:
            self._lent.put(grid)
            self._stopped.wait()

        try:
            run_simulation(
                server,
                client,
                num_supernodes=self._number_of_nodes,
                backend_config={"client_resources": {"num_cpus": 1, "num_gpus": self._actors.num_gpus}},
            )
        except (RuntimeError, ImportError) as error:
            self._failure = error.__cause__ or error

    def _wait_for_grid(self) -> Grid:
        while True:
            try:
                return self._lent.get(timeout=_POLL_S)
            except queue.Empty:
                self._check()

    def _check(self) -> None:
        if not self._thread.is_alive():
            raise EngineFailed(f"Flower's simulation ended: {self._failure}") from self._failure


def _answer(message: Message, context: Context) -> Message:
    """The ClientApp: the requests of one virtual node to the Host of the actor that it runs in."""
    _end_when_told()
    parties: list[str] = []
    replies: list[bytes] = []
    try:
        host = _open_host(str(message.content["host"]["spec"]))
        requests: dict[str, Any] = dict(message.content["requests"])  # Any: as _FlowerExchange filled it
        for party, reply in host.handle(requests):
            parties.append(party)
            replies.append(reply)
    except ConclaveError as error:
        return Message(RecordDict({"error": ConfigRecord({**describe_error(error)})}), reply_to=message)
    answers = ConfigRecord({"parties": parties, "replies": replies})
    return Message(RecordDict({"answers": answers}), reply_to=message)


@cache
def _open_host(spec: str) -> WorkerHost:
    """The Host of this actor's process, opened at its first message."""
    return HostSpec(**parse_json(spec, where="a host")).open()


@cache
def _end_when_told() -> None:
    """Starts a thread that ends this actor when the run stops: Flower would wait for its work to be done."""

    def watch(key: bytes) -> None:
        while internal_kv._internal_kv_get(key) is None:
            time.sleep(_WATCH_S)
        os._exit(1)

    threading.Thread(target=watch, args=(_stop_key(),), daemon=True).start()


def _stop_key() -> bytes:
    return f"conclave-stop-{ray.get_runtime_context().get_job_id()}".encode()


@contextmanager
def _ray(workers: int | None, parties: int) -> Iterator[_Actors]:
    """Starts Ray on this machine, or joins the cluster of RAY_ADDRESS; shuts it down at the end."""
    if ray.is_initialized():
        raise EngineFailed("Ray is already running in this process; call ray.shutdown() first")
    processes: list[subprocess.Popen[bytes]] = []
    try:
        try:
            with _collected():
                processes = _start_ray(workers, parties)
        except (ray.exceptions.RayError, RuntimeError, ValueError, OSError) as error:
            raise EngineFailed(f"Ray did not start: {error}") from error
        yield _actors_that_fit()
    finally:
        with _collected():
            ray.shutdown()
            end_all(processes, within_s=_GONE_WITHIN_S)  # Ray tells them to end and does not wait


@contextmanager
def _collected() -> Iterator[None]:
    """Ray leaves open files to the garbage collector: collects them here, where their warning is ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


def _start_ray(workers: int | None, parties: int) -> list[subprocess.Popen[bytes]]:
    """Returns the processes that Ray started on this machine beside its workers; none for a cluster."""
    if os.environ.get("RAY_ADDRESS"):
        ray.init(runtime_env={"env_vars": worker_environment()}, log_to_driver=False)
    else:
        # Not the job's runtime_env: Ray would throw the first workers away, which it starts at once, for others.
        with in_worker_environment(), lean(ray._private.node.Node, ray._private.services):
            ray.init(
                address="local",
                num_cpus=count_workers(workers, parties),
                num_gpus=int(gpu_present()),
                object_store_memory=_OBJECT_STORE_BYTES,
                include_dashboard=False,
                log_to_driver=False,
            )
    node: Any = ray._private.worker._global_node  # Any: Ray declares it None
    return [info.process for infos in node.all_processes.values() for info in infos]


def _actors_that_fit() -> _Actors:
    """One actor for each core; with CUDA devices, one for each of a cluster, or shares of this machine's."""
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]  # Ray's own gap
    cores, devices = int(resources.get("CPU", 0)), resources.get("GPU", 0.0)
    if not devices:
        return _Actors(cores, num_gpus=0.0)
    if os.environ.get("RAY_ADDRESS"):
        return _Actors(int(min(cores, devices)), num_gpus=1.0)
    share = int(10_000 / cores) / 10_000  # Ray counts in ten-thousandths
    return _Actors(cores, num_gpus=share)


@contextmanager
def _quiet(log: Path | None) -> Iterator[None]:
    """Sends what Flower and Ray log and print to the file `log`, or nowhere, instead of to the person."""

    def log_line(data: Mapping[str, Any], ignore_prefix: bool) -> None:  # Any: Ray's own record
        logging.getLogger("ray").error("%s", "\n".join(data["lines"]))

    # Ray prints its error messages (a worker that died) on standard output, whatever log_to_driver says.
    ray_worker = ray._private.worker
    with logged_to(log, ["flwr", "ray"]):
        print_to_stdstream, ray_worker.print_to_stdstream = ray_worker.print_to_stdstream, log_line
        try:
            yield
        finally:
            ray_worker.print_to_stdstream = print_to_stdstream
