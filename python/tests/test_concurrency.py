"""Threads: a call that waits for another thread's work lets all others run."""
import os
import subprocess
import sys
import textwrap
import threading
import time
import unittest
from unittest import mock

import numpy as np

import minrnn

# The main thread keeps a forward, so that the other one's call waits; then the main thread must still run.
WAITS = """
    import os, sys, tempfile, threading, time
    import numpy as np
    import minrnn
    reals = minrnn.Model(input="reals", inputs=2, outputs=1, loss="mse", layers=1, dim=8)
    text = minrnn.Model(vocab="bytes", layers=1, dim=8)
    values, ids = np.ones((2, 3, 2), np.float32), np.zeros((2, 3), np.int32)
    stream = text.stream()
    state = stream.save()
    path = os.path.join(tempfile.mkdtemp(), "model")
    text.save_training(path)
    calls = {
        "state_dict": (text, text.state_dict), "set": (text, lambda: text.set(lr=0.1)),
        "fit_scaler": (reals, lambda: reals.fit_scaler(values=values, target_values=values[:, :, :1])),
        "save": (text, stream.save), "load": (text, lambda: stream.load(state)), "clone": (text, stream.clone),
        "stream": (text, lambda: [text.stream() for _ in range(20)]), "feed": (text, lambda: stream.feed("a")),
        "drop": (text, text.drop), "mark_best": (text, text.mark_best), "update": (text, text.update),
        "copy": (text, lambda: text.tensor("head.weight", copy=True)),
        "load_state_dict": (text, lambda: text.load_state_dict(weights)), "forward": (text, lambda: text(ids)),
        "evaluate": (text, lambda: text.evaluate(ids=ids, target=ids)),
        "losses": (text, lambda: text.losses(ids=ids, target=ids)),
        "save_training": (text, lambda: text.save_training(path)),
        "load_training": (text, lambda: text.load_training(path)), "describe": (text, lambda: repr(text)),
    }
    weights = {name: x.copy() for name, x in text.state_dict().items()}
    for name, (model, call) in calls.items():
        print(name, flush=True)
        scores = model.forward(ids if model is text else None, None if model is text else values, train=True)
        thread = threading.Thread(target=call)
        thread.start()
        time.sleep(0.02)
        if name != "drop":
            model.backward(0 * scores)
        thread.join()
        model.drop()
"""

# A thread keeps a forward and ends; then the main thread's calls go on. Another thread's forward is not dropped.
ENDS = """
    import threading
    import numpy as np
    import minrnn
    model = minrnn.Model(vocab="bytes", layers=1, dim=8)
    ids = np.zeros((2, 3), np.int32)
    thread = threading.Thread(target=model.forward, args=(ids,), kwargs={"train": True})
    thread.start()
    thread.join()
    model.state_dict()
    def refused():
        try:
            model.backward(np.nan * model.forward(ids, train=True))
        except minrnn.Error:
            return
    thread = threading.Thread(target=refused)
    thread.start()
    thread.join()
    model.state_dict()
    for finish in lambda scores: model.backward(0 * scores), lambda scores: model.drop():
        kept, done = threading.Event(), threading.Event()
        def work():
            finish(model.forward(ids, train=True))
            kept.set()
            done.wait()
        thread = threading.Thread(target=work)
        thread.start()
        kept.wait()
        scores = model.forward(ids, train=True)
        done.set()
        thread.join()
        model.backward(0 * scores)
        model.update()
    def both():
        model.backward(0 * model.forward(ids, train=True))
        model.forward(ids, train=True)
    thread = threading.Thread(target=both)
    thread.start()
    thread.join()
    model.update()  # with the gradients of the first, which stay
"""

# Threads come and go, and each has a forward of its own in between: the end of one drops that of no other.
TURNS = """
    import threading
    import time
    import numpy as np
    import minrnn
    model = minrnn.Model(vocab="bytes", layers=1, dim=8)
    ids, failed = np.zeros((2, 3), np.int32), []
    def work():
        try:
            for _ in range(3):
                scores = model.forward(ids, train=True)
                time.sleep(0.0003)
                model.backward(0 * scores)
        except Exception as error:
            failed.append(error)
    end = time.monotonic() + 2
    while time.monotonic() < end and not failed:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed, failed
    scores = model.forward(ids, train=True)
    try:
        model.backward(scores * np.nan)
    except minrnn.Error:
        model.backward(0 * scores)  # a refused one can be tried again
"""

# A child begins with the contexts of a CPU, and with a lock that no thread of its own holds.
FORKED = """
    import os
    import signal
    import threading
    import minrnn
    from minrnn import contexts
    places = [(name, 0, False, False) for name in ("cuda", "cuda:1", "auto")]
    for place in places:
        contexts._shared[place] = object()
    of_gpus, cpu = [contexts._shared[place] for place in places], minrnn.context()
    contexts._lock.acquire()  # as another thread would
    child = os.fork()
    if not child:
        signal.alarm(30)
        assert minrnn.context() is cpu
        minrnn.context("cpu", 1)
        assert contexts._lost == of_gpus, contexts._lost
        assert not set(places) & contexts._shared.keys()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    model, kept, done = minrnn.Model(vocab="bytes", layers=1, dim=8), threading.Event(), threading.Event()
    def work():
        model.forward([[1, 2]], train=True)
        kept.set()
        done.wait()
    thread = threading.Thread(target=work)
    thread.start()
    kept.wait()
    child = os.fork()  # where the other thread is gone, and its forward stays
    if not child:
        os._exit(0)
    signal.alarm(30)
    assert os.waitpid(child, 0)[1] == 0
    done.set()
    thread.join()
    assert set(places) < contexts._shared.keys() and not contexts._lost
"""


class Threads(unittest.TestCase):
    def run_alone(self, program):
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)

    def test_calls_that_wait_let_others_run(self):
        self.run_alone(WAITS)

    def test_the_end_of_a_thread_drops_its_forward(self):
        self.run_alone(ENDS)

    def test_threads_take_turns(self):
        self.run_alone(TURNS)

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork here")
    def test_a_child_has_contexts_of_its_own(self):
        self.run_alone(FORKED)

    def test_threads_that_ask_at_once_share_a_context(self):
        made, found = [], []

        def slow(*wanted):
            made.append(wanted)
            time.sleep(0.05)
            return object()
        with mock.patch("minrnn.contexts._core.context_new", slow), mock.patch("minrnn.contexts._shared", {}):
            threads = [threading.Thread(target=lambda: found.append(minrnn.context("cpu", 7))) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual((len(made), len(set(map(id, found))), len(found)), (1, 1, 4))

    def test_long_texts_let_others_run(self):
        model = minrnn.Model(vocab=sorted(set("the cät")), layers=1, dim=8)
        text = b"the c" * 4_000_000
        ticks, stop = [], threading.Event()

        def tick():
            while not stop.wait(0.001):
                ticks.append(time.monotonic())

        thread = threading.Thread(target=tick)
        thread.start()
        start = time.monotonic()
        tokens = model._net.encode(text)
        middle = time.monotonic()
        self.assertEqual(model._net.decode(np.frombuffer(tokens, np.int32), len(text)), text)
        end = time.monotonic()
        stop.set()
        thread.join()
        for a, b in (start, middle), (middle, end):
            self.assertGreater(sum(a < t < b for t in ticks), 2)  # of 100 or so on an idle machine, and otherwise none


if __name__ == "__main__":
    unittest.main()
