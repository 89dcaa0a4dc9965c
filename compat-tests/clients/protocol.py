"""The loop of a client driver in Python: reads operations as JSON lines, answers them (the other side is lib/driver.py)."""
import base64
import json
import os
import sys
import traceback


class KafkaFailure(Exception):
    """An error that the client reported, by Kafka's name."""

    def __init__(self, name, text=""):
        super().__init__(text)
        self.name = name


def encode(data):
    return None if data is None else base64.b64encode(data).decode()


def decode(text):
    return None if text is None else base64.b64decode(text)


def serve(client, version, features):
    """`client` has one method per operation, named `op_NAME`."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints by itself is no answer
    operations = {name[3:]: getattr(client, name) for name in dir(client) if name.startswith("op_")}
    for line in sys.stdin:
        request = json.loads(line)
        op = request.pop("op")
        try:
            if op == "hello":
                answer = {"ok": {"version": version, "can": sorted(operations), "features": features}}
            else:
                answer = {"ok": operations[op](**request)}
        except KafkaFailure as failure:
            answer = {"error": failure.name, "text": str(failure)}
        except Exception as failure:
            traceback.print_exc()
            answer = {"error": "DRIVER", "text": f"{type(failure).__name__}: {failure}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
