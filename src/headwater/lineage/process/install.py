"""Installing lineage, and taking it out again.

    install(spark)      this session's application, and every one that this process starts later
    flush()             wait until everything so far has been sent
    uninstall()         leave nothing behind

All of them may be called from any thread, and twice; none of them raises because of lineage (G10).
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

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from headwater.lineage.session import LineageSession

__all__ = ["LineageUnavailable", "attach_or_warn", "flush", "install", "uninstall", "warn_of_connect"]

logger = logging.getLogger(__name__)


class LineageUnavailable(UserWarning):
    """There will be no lineage; the text says why. Warned, never raised."""


class _Process:
    """What lineage holds in this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.sessions: list[LineageSession] = []
        self.given: dict[str, Any] = {}
        self.process = os.getpid()
        self.has_hooks = False


_state = _Process()


def install(spark: SparkSession | SparkContext | None = None, **settings: Any) -> None:
    """Tell the lineage of `spark`'s application, and of all that this process starts after it.

    `settings` are fields of LineageSettings and have precedence over Spark's configuration, such as
    `namespace="shop"` or `transport={"type": "http", "url": "http://localhost:8750"}`. A `transport` may also
    be an object of openlineage-python's class. Without `spark` only sessions to come are told.
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
    """Send what is known, and undo everything that `install` did. Spark goes on, untold."""
    unhook_spark()
    with _state.lock:
        sessions, _state.sessions = _state.sessions, []
        _state.given = {}
    for session in sessions:
        _log_errors(session.finish, None, session.settings.exit_millis / 1000)
    exit_status.uninstall()


def flush(timeout_seconds: float = 30.0) -> bool:
    """Wait until everything that has happened so far is with the transport; whether it is."""
    deadline = time.monotonic() + timeout_seconds
    with _state.lock:
        sessions = list(_state.sessions)
    done = [_log_errors(session.flush, max(0.0, deadline - time.monotonic())) is True for session in sessions]
    return all(done)


def attach_or_warn(context: SparkContext) -> None:
    """Attach to this application, unless that has been done; what goes wrong is a warning."""
    try:
        _attach(context)
    except Exception as error:
        logger.debug("No lineage", exc_info=True)
        _warn((str(error) or repr(error)).strip().splitlines()[0])


def warn_of_connect(session: Any) -> None:
    """Say once why a Spark Connect client has no lineage, unless the server is in this very process."""
    del session
    with _state.lock:
        if any(not each.is_finished for each in _state.sessions):
            return
    _warn(
        "a Spark Connect client sees no plans. Install it where the server runs: start that from Python, with"
        " spark.plugins=org.apache.spark.sql.connect.SparkConnectPlugin."
    )


def _warn(reason: str) -> None:
    try:
        warnings.warn(f"No lineage: {reason}", LineageUnavailable, stacklevel=3)
    except LineageUnavailable:  # who makes errors of warnings does not mean to lose the job (G10)
        logger.warning("No lineage: %s", reason)


def _attach(context: SparkContext) -> None:
    from headwater.lineage.session import LineageSession

    if importlib.util.find_spec("openlineage") is None:
        raise ModuleNotFoundError("openlineage-python is not installed; `pip install 'headwater[lineage]'`.")
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
    """The SparkContext of a session; None of a Spark Connect client, which has none."""
    if hasattr(spark, "_jsparkSession"):
        return spark._sc
    return spark if hasattr(spark, "_do_init") else None


def _finish_stopped() -> None:
    """A new application: those before it have ended, and not badly, for the process goes on."""
    for session in _state.sessions:
        _log_errors(session.finish, None, session.settings.exit_millis / 1000)
    _state.sessions = []


def _load_spool(settings: LineageSettings) -> None:
    # What is loaded before our own hook is closed after it, so that the last events find the spool open.
    if settings.spool or "headwater.spool" in str(settings.transport.get("type")):
        importlib.import_module("headwater.spool")


def _hook() -> None:
    if not _state.has_hooks:
        _state.has_hooks = True
        # Before thread pools close, which transports may use; the plain one is for what threads did after it.
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
    """A forked child has none of the threads, and its parent tells its own end."""
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
