#!/usr/bin/env python3
"""A runner for Carillon in plain Python 3, without any library.

A runner is an HTTP server. Controllers call it by POST /carillon.v1.VerbService/Call with a JSON body, and it makes
itself known to them by POST /carillon.v1.RunnerService/Register. That is all of it: this file can be taken as the
start of a runner in Python, and read as the recipe for one in any language.

    carillon dev                                    # a cluster on this machine; it prints its URLs, and asks for no token
    CARILLON_CONTROLLER=http://127.0.0.1:7800 python3 runner.py --deploy    # elsewhere with CARILLON_CLUSTER_TOKEN
    carillon jobs enqueue wordcount.count '{"text": "so much depends upon"}' --wait

What a runner has to do, and where it is done below:

 1. Register: name, URL, capacity, schema, digest of the code (Registrar.register). `stream` is false: one POST for each
    call. The answer names the deployment that this code is, and how often to send a heartbeat.
 2. Send heartbeats (Registrar.run). NOT_FOUND asks to register again. When one controller is away, go on with the next.
 3. Answer calls (Runner.call). A call has a run id: the same id twice is one run with one answer. What this runner cannot
    begin (it drains, it is full, another deployment is meant) it answers with OUTCOME_REFUSED, and the cluster asks
    another one. Everything that was begun is OUTCOME_SUCCEEDED or OUTCOME_FAILED.
 4. Demand the cluster's token of whoever calls, before anything is read.
 5. At SIGTERM: refuse new calls, deregister, finish what runs, exit 0 (main).

JSON is protobuf's own form: names in camelCase, bytes in base64, durations as "1.5s", times in RFC 3339. The request and
the response of a verb are JSON as well, inside `payload`.

A simple runner cannot report progress, and learns of a cancelled job only by the connection that closes.
"""

import argparse
import base64
import collections
import hashlib
import hmac
import http.client
import json
import os
import secrets
import signal
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# ---- the module: its verbs and their schema ------------------------------------------------------------------------

MODULE = "wordcount"


def count(request, run):
    """Counts the words of a text; `seconds` lets it take its time, to see what a drain or a timeout does."""
    if not request["text"].strip():
        raise Final("there is no word in it")
    time.sleep(min(request.get("seconds") or 0, run.seconds_left()))
    words = request["text"].split()
    return {"words": len(words), "longest": max(words, key=len)}


VERBS = {"count": count}

SCHEMA = {
    "module": MODULE,
    "language": "other",
    "verbs": [{"name": "count", "request": "Text", "response": "Counts", "timeout": "60s"}],
    "data": [
        {"name": "Text", "fields": [
            {"name": "text", "type": "String"},
            {"name": "seconds", "type": "Float", "optional": True},
        ]},
        {"name": "Counts", "fields": [
            {"name": "words", "type": "Int"},
            {"name": "longest", "type": "String"},
        ]},
    ],
}

# ---- what a verb can say -------------------------------------------------------------------------------------------


class Final(Exception):
    """A failure for good: no attempt follows."""


class RetryAfter(Exception):
    """A failure; the next attempt begins after so many seconds."""

    def __init__(self, seconds, text):
        super().__init__(text)
        self.seconds = seconds


class Run:
    """Which run a verb executes."""

    def __init__(self, call):
        self.id = call["runId"]
        self.ref = call.get("ref", "")
        self.job = call.get("jobId", "")  # empty for a cron job's run
        self.tenant = call.get("tenant", "")
        self.slot = call.get("slot")  # RFC 3339; of a cron job's run
        self.attempt = call.get("attempt", 0)
        self.idempotency_key = call.get("idempotencyKey", "")  # the same for every attempt
        self.until = time.monotonic() + duration(call.get("timeout", "300s"))

    def seconds_left(self):
        return max(self.until - time.monotonic(), 0)


def duration(text):
    return float(text.rstrip("s"))


def log(text, **facts):
    print(text, *("%s=%s" % f for f in facts.items()), file=sys.stderr, flush=True)


# ---- the runner ----------------------------------------------------------------------------------------------------

MAX_BODY = 4 << 20
MAX_PAYLOAD = 1 << 20
MAX_ERROR = 8 << 10
REMEMBERED = 1000


class Runner:
    """Executes calls: each run id once, at most `capacity` at a time."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.deployment = None  # until registered
        self.draining = False
        self.lock = threading.Condition()
        self.running = {}  # run id -> True
        self.answers = collections.OrderedDict()  # of the last runs

    def call(self, call):
        run_id = call.get("runId", "")
        refusal = self.enter(run_id, call)
        if refusal is not None:
            return refusal
        begun = time.monotonic()
        answer = {"outcome": "OUTCOME_FAILED", "error": "the verb did not return"}
        try:
            answer = self.execute(Run(call), call)
        finally:
            answer["runId"] = run_id
            answer["took"] = "%.6fs" % (time.monotonic() - begun)
            with self.lock:
                del self.running[run_id]
                self.answers[run_id] = answer
                while len(self.answers) > REMEMBERED:
                    self.answers.popitem(last=False)
                self.lock.notify_all()
        log("run ended", run=run_id, outcome=answer["outcome"])
        return answer

    def enter(self, run_id, call):
        """Takes a place for a run; an answer where it may not begin, or has begun before."""

        def say(outcome, text):
            return {"runId": run_id, "outcome": outcome, "error": text}

        with self.lock:
            while run_id in self.running:  # asked for twice: both get the one answer
                self.lock.wait()
            if run_id in self.answers:
                return self.answers[run_id]
            if not run_id or len(run_id) > 64:
                return say("OUTCOME_FAILED", "malformed call")
            if self.deployment is None or call.get("deployment") != self.deployment:
                return say("OUTCOME_REFUSED", "this runner serves deployment %s" % self.deployment)
            if self.draining:
                return say("OUTCOME_REFUSED", "draining")
            if len(self.running) >= self.capacity:
                return say("OUTCOME_REFUSED", "no capacity")
            self.running[run_id] = True
            return None

    def execute(self, run, call):
        module, _, name = run.ref.partition(".")
        verb = VERBS.get(name) if module == MODULE else None
        if verb is None:
            return {"outcome": "OUTCOME_FAILED", "error": "unknown verb " + safe(run.ref)}
        try:
            request = json.loads(base64.b64decode(call.get("payload", "")) or b"null")
        except ValueError as e:
            return {"outcome": "OUTCOME_FAILED", "error": safe("payload: %s" % e), "final": True}
        log("run begins", run=run.id, ref=run.ref, attempt=run.attempt)
        try:
            response = json.dumps(verb(request, run), ensure_ascii=False).encode()
            if len(response) > MAX_PAYLOAD:
                raise Final("response: has %d bytes, at most %d are accepted" % (len(response), MAX_PAYLOAD))
        except Final as e:
            return {"outcome": "OUTCOME_FAILED", "error": safe(e), "final": True}
        except RetryAfter as e:
            return {"outcome": "OUTCOME_FAILED", "error": safe(e), "after": "%.3fs" % max(e.seconds, 0.001)}
        except Exception as e:  # a verb that fails ends its own run only
            return {"outcome": "OUTCOME_FAILED", "error": safe("%s: %s" % (type(e).__name__, e))}
        return {"outcome": "OUTCOME_SUCCEEDED", "payload": base64.b64encode(response).decode()}

    def drain(self, seconds):
        """Waits for what runs; how much still does after so many seconds."""
        until = time.monotonic() + seconds
        with self.lock:
            while self.running and time.monotonic() < until:
                self.lock.wait(until - time.monotonic())
            return len(self.running)


def safe(text):
    """What a ledger may hold: valid UTF-8 without NUL, at most 8 KiB."""
    raw = str(text).replace("\0", " ").encode("utf-8", "replace")[:MAX_ERROR]
    return raw.decode("utf-8", "ignore")


class Handler(BaseHTTPRequestHandler):
    """Connect over HTTP/1.1: a POST with JSON, answered by JSON; errors have a status and {"code", "message"}."""

    protocol_version = "HTTP/1.1"
    timeout = 120  # of a silent connection
    wbufsize = -1  # one packet for head and body
    disable_nagle_algorithm = True
    runner = None
    token = ""

    def do_POST(self):
        try:
            if self.token and not hmac.compare_digest(self.headers.get("Authorization", "").encode(), b"Bearer " + self.token.encode()):
                return self.refuse(401, "unauthenticated", "the cluster token is missing or wrong")
            if self.path != "/carillon.v1.VerbService/Call":
                return self.refuse(404, "unimplemented", "this runner serves VerbService.Call")
            if self.headers.get("Content-Type", "").partition(";")[0].strip() != "application/json":
                return self.refuse(415, "unknown", "this runner reads application/json")
            if self.headers.get("Content-Encoding", "identity") != "identity":
                return self.refuse(404, "unimplemented", "this runner reads no compressed bodies")
            try:
                call = json.loads(self.body())
                if not isinstance(call, dict):
                    raise ValueError("no object")
                answer = self.runner.call(call)
            except (ValueError, TypeError, AttributeError) as e:
                return self.refuse(400, "invalid_argument", "malformed call: %s" % e)
            self.answer(200, answer)
        except (ConnectionError, TimeoutError):
            self.close_connection = True  # the controller gave the run up

    def do_GET(self):
        self.answer(200, {"ok": True}) if self.path == "/healthz" else self.refuse(404, "not_found", "nothing here")

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            length = int(self.headers.get("Content-Length", 0))
            if not 0 <= length <= MAX_BODY:
                raise ValueError("%d bytes" % length)
            return self.rfile.read(length)
        parts, left = [], MAX_BODY
        while True:
            size = int(self.rfile.readline(64).split(b";")[0], 16)
            if not 0 <= size <= left:
                raise ValueError("more than %d bytes" % MAX_BODY)
            left -= size
            parts.append(self.rfile.read(size))
            self.rfile.readline(64)
            if size == 0:
                return b"".join(parts)

    def refuse(self, status, code, message):
        self.close_connection = True  # the body was not read
        self.answer(status, {"code": code, "message": safe(message)})

    def answer(self, status, value):
        raw = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(raw)
        self.wfile.flush()

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


# ---- making the runner known ---------------------------------------------------------------------------------------


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__("%s: %s" % (code, message))
        self.code = code


class Registrar(threading.Thread):
    """Keeps the runner registered at any controller that answers."""

    def __init__(self, runner, args, endpoint):
        super().__init__(daemon=True)
        self.runner, self.token, self.configured = runner, args.token, args.controller
        self.known = list(self.configured)
        self.stopped = threading.Event()
        self.failure = None
        self.registered = False
        self.beat = 1.0
        # The digest names this code: what is deployed is exactly this file.
        with open(__file__, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()
        self.key = MODULE + "-" + secrets.token_hex(6)
        self.request = {
            "runner": self.key, "endpoint": endpoint, "capacity": runner.capacity, "stream": False,
            "schema": SCHEMA, "digest": digest, "deploy": args.deploy,
        }

    def rpc(self, url, method, message):
        at = urllib.parse.urlsplit(url)
        kind = http.client.HTTPSConnection if at.scheme == "https" else http.client.HTTPConnection
        conn = kind(at.hostname, at.port, timeout=2)
        try:
            headers = {"Content-Type": "application/json", "Connect-Protocol-Version": "1"}
            if self.token:
                headers["Authorization"] = "Bearer " + self.token
            conn.request("POST", "%s/carillon.v1.RunnerService/%s" % (at.path.rstrip("/"), method), json.dumps(message), headers)
            resp = conn.getresponse()
            value = json.loads(resp.read(1 << 20) or b"{}")
        finally:
            conn.close()
        if resp.status != 200:
            raise Refused(value.get("code", "unknown"), value.get("message", "HTTP %d" % resp.status))
        return value

    def ask(self, method, message):
        """Asks the controllers in turn until one answers, and stays with it."""
        trouble = None
        for url in list(self.known):
            try:
                value = self.rpc(url, method, message)
            except (OSError, http.client.HTTPException, ValueError) as e:
                trouble = e
                continue
            except Refused as e:
                if e.code in ("unavailable", "internal", "unknown", "deadline_exceeded"):
                    trouble = e
                    continue
                raise
            others = [u for u in value.get("controllers", []) if u != url]
            self.known = [url] + others + [u for u in self.configured if u != url and u not in others]
            return value
        raise OSError("no controller answers: %s" % trouble)

    def register(self):
        value = self.ask("Register", self.request)
        self.beat = min(max(duration(value.get("heartbeat", "1s")), 0.01), 30)
        with self.runner.lock:
            self.runner.deployment = value["deployment"]
        log("runner registered", deployment=value["deployment"], controller=self.known[0], active=value.get("active", False))

    def run(self):
        pause = 0.1
        while not self.stopped.is_set():
            try:
                if self.registered:
                    self.ask("Heartbeat", {"runner": self.key})
                else:
                    self.register()
                    self.registered = True
                pause = 0.1
                self.stopped.wait(self.beat)
            except Refused as e:
                if e.code == "not_found" and self.registered:
                    self.registered = False
                    continue
                if self.runner.deployment is None and e.code in ("invalid_argument", "unauthenticated", "permission_denied"):
                    self.failure = e  # trying again does not mend it
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
                log("runner is not known to the cluster", cause=e)
                self.stopped.wait(pause)
                pause = min(2 * pause, 2)
            except OSError as e:
                log("runner is not known to the cluster", cause=e)
                self.stopped.wait(pause)
                pause = min(2 * pause, 2)

    def leave(self):
        self.stopped.set()
        self.join(5)
        if self.registered:
            try:
                self.ask("Deregister", {"runner": self.key})
                log("runner deregistered")
            except (OSError, Refused) as e:
                log("no controller took the deregistration", cause=e)


def options():
    env = os.environ.get
    p = argparse.ArgumentParser(description="A Carillon runner in plain Python.")
    p.add_argument("--controller", default=env("CARILLON_CONTROLLER", "http://127.0.0.1:7800"), help="URL[,URL] of the controllers")
    p.add_argument("--listen", default=env("CARILLON_LISTEN", "127.0.0.1:0"), help="address to serve the verbs on")
    p.add_argument("--advertise", default=env("CARILLON_ADVERTISE", ""), help="URL under which controllers reach this runner")
    p.add_argument("--capacity", type=int, default=int(env("CARILLON_CAPACITY", "20")), help="calls in flight")
    p.add_argument("--drain", type=float, default=25, help="seconds that calls in flight may go on after a stop")
    p.add_argument("--deploy", action="store_true", default=env("CARILLON_DEPLOY", "") == "true", help="deploy if this code was never deployed")
    args = p.parse_args()
    args.controller = [u.strip().rstrip("/") for u in args.controller.split(",") if u.strip()]
    args.token = env("CARILLON_CLUSTER_TOKEN", "")
    if not args.token and env("CARILLON_CLUSTER_TOKEN_FILE"):
        with open(env("CARILLON_CLUSTER_TOKEN_FILE")) as f:
            args.token = f.read().strip()
    host, _, port = args.listen.rpartition(":")
    args.address = (host, int(port))
    if not args.token and host not in ("127.0.0.1", "localhost"):
        p.error("serving %s without CARILLON_CLUSTER_TOKEN would let anybody call" % args.listen)
    if not args.advertise and host in ("", "0.0.0.0"):
        p.error("listening on %s needs --advertise" % args.listen)
    return args


def main():
    args = options()
    stop = threading.Event()
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, lambda *_: stop.set())
    runner = Runner(args.capacity)
    Handler.runner, Handler.token = runner, args.token
    server = Server(args.address, Handler)
    endpoint = args.advertise or "http://%s:%d" % server.server_address[:2]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    registrar = Registrar(runner, args, endpoint)
    registrar.start()
    log("runner serves", endpoint=endpoint)
    stop.wait()
    log("runner drains")
    with runner.lock:
        runner.draining = True
    registrar.leave()
    left = runner.drain(args.drain)
    time.sleep(0.1)  # the last answers are on their way
    if registrar.failure:
        log("register the runner", error=registrar.failure)
        return 1
    log("runner stopped", left=left)
    return 0


if __name__ == "__main__":
    sys.exit(main())
