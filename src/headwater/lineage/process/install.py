"""Installs lineage in this process and removes it.

    install(spark)      this session's application, and every one that this process starts later
    flush()             wait until all events so far are sent
    uninstall()         end all sessions and remove all hooks

Any thread may call them, also twice; none of them raises because of lineage (G10).
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import logging
import os
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

from headwater.lineage.process.exit_status import exit_status
from headwater.lineage.process.spark_hook import hook_spark, unhook_spark
from headwater.lineage.settings import LineageSettings, read
from headwater.system.installation import install_command

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from headwater.lineage.session import LineageSession

logger = logging.getLogger(__name__)


class LineageUnavailable(UserWarning):
    """There is no lineage, for the reason in the text. A warning, never raised."""


class _Process:
    """The state of lineage in this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.sessions: list[LineageSession] = []
        self.given: dict[str, Any] = {}
        self.process = os.getpid()
        self.has_hooks = False


_state = _Process()


def install(spark: SparkSession | SparkContext | None = None, **settings: Any) -> None:
    """Send the lineage of `spark`'s application, and of all applications that this process starts later.

    `settings` are fields of LineageSettings and have precedence over Spark's configuration, such as
    `namespace="shop"` or `transport={"type": "http", "url": "http://localhost:8750"}`. A `transport` may also
    be an object of openlineage-python's class. Without `spark` it applies to later sessions only.
    """
    with _state.lock:
        _state.given = dict(settings)
    hook_spark(attach_or_warn, warn_of_connect)
    exit_status.install()
    if spark is None:
        return
    context = _context(spark)
    if context is None:
        warn_of_connect(spark)
    else:
        attach_or_warn(context)


def uninstall() -> None:
    """Send the pending events and undo everything that `install` did. Spark keeps running."""
    unhook_spark()
    with _state.lock:
        sessions, _state.sessions = _state.sessions, []
        _state.given = {}
    for session in sessions:
        _log_errors(session.finish, None, session.settings.exit_millis / 1000)
    exit_status.uninstall()


def flush(timeout_seconds: float = 30.0) -> bool:
    """Wait until the transport has all events so far; return whether it has."""
    deadline = time.monotonic() + timeout_seconds
    with _state.lock:
        sessions = list(_state.sessions)
    done = [_log_errors(session.flush, max(0.0, deadline - time.monotonic())) is True for session in sessions]
    return all(done)


def attach_or_warn(context: SparkContext) -> None:
    """Start a session for this application, once; an error becomes a warning."""
    try:
        _attach(context)
    except Exception as error:
        logger.debug("No lineage", exc_info=True)
        _warn((str(error) or repr(error)).strip().splitlines()[0])


def warn_of_connect(session: Any) -> None:
    """Warn that a Spark Connect client has no lineage, unless its server is in this process."""
    del session
    with _state.lock:
        if any(not each.is_finished for each in _state.sessions):
            return
    _warn(
        "a Spark Connect client sees no plans. Install lineage in the process of the server: start the server"
        " from Python, with spark.plugins=org.apache.spark.sql.connect.SparkConnectPlugin."
    )


def _warn(reason: str) -> None:
    try:
        warnings.warn(f"No lineage: {reason}", LineageUnavailable, stacklevel=3)
    except LineageUnavailable:  # warnings may be errors, but must not fail the job (G10)
        logger.warning("No lineage: %s", reason)


def _attach(context: SparkContext) -> None:
    from headwater.lineage.session import LineageSession

    if importlib.util.find_spec("openlineage") is None:
        raise ModuleNotFoundError(f"openlineage-python is not installed; run `{install_command('lineage')}`.")
    _forget_parent_process()
    with _state.lock:
        for known in list(_state.sessions):
            if known.context is context and not known.is_finished:
                return
        given = dict(_state.given)
        transport = given.pop("transport", None)
        if isinstance(transport, dict):
            given["transport"] = transport
        settings = read(dict(context.getConf().getAll()), given=given)
        if settings.disabled:
            return
        _load_spool(settings)
        _finish_stopped()
        made = LineageSession(
            context,
            settings,
            lambda agent: _builder(context, settings, agent),
            lambda: _client(settings, None if isinstance(transport, dict) else transport),
        )
        made.start()
        _state.sessions.append(made)
        if made.agent_error is not None:
            _warn(made.agent_error)
        _hook()
        exit_status.install()


def _builder(context: SparkContext, settings: LineageSettings, agent: Any) -> Any:
    found = importlib.import_module("headwater.lineage.events.build")
    return found.event_builder(context, settings, agent)


def _client(settings: LineageSettings, transport: Any) -> Any:
    from openlineage.client import OpenLineageClient

    from headwater.lineage.sending.transports import client

    return client(settings) if transport is None else OpenLineageClient(transport=transport)


def _context(spark: Any) -> Any:
    """The SparkContext of a session; None for a Spark Connect client, which has none."""
    if hasattr(spark, "_jsparkSession"):
        return spark._sc
    return spark if hasattr(spark, "_do_init") else None


def _finish_stopped() -> None:
    """Finish the sessions of earlier applications: they succeeded, since the process is still running."""
    for session in _state.sessions:
        _log_errors(session.finish, None, session.settings.exit_millis / 1000)
    _state.sessions = []


def _load_spool(settings: LineageSettings) -> None:
    # A module that is imported before our hook is closed after it: the last events need the spool open.
    if settings.spool or "headwater.spool" in str(settings.transport.get("type")):
        importlib.import_module("headwater.spool")


def _hook() -> None:
    if not _state.has_hooks:
        _state.has_hooks = True
        # Before thread pools close, which transports may use; `atexit` is for threads that end later.
        getattr(threading, "_register_atexit", atexit.register)(_before_threads_end)
        atexit.register(_at_exit)


def _before_threads_end() -> None:
    others = [
        each for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()
    ]
    if not others:
        _at_exit()


def _at_exit() -> None:
    if _state.process != os.getpid():
        return
    with _state.lock:
        sessions, _state.sessions = _state.sessions, []
    for session in sessions:
        _log_errors(session.finish, exit_status.failure, session.settings.exit_millis / 1000)


def _forget_parent_process() -> None:
    """Abandon the sessions of the parent process: a forked child has none of their threads."""
    if _state.process != os.getpid():
        for session in _state.sessions:
            session.abandon()
        _state.sessions, _state.process, _state.has_hooks = [], os.getpid(), False


def _log_errors(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Exception:
        logger.warning("Lineage", exc_info=True)
        return None
