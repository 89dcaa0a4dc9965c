"""In the place of kafka-python's module of this name, which its source distribution lacks: brokers that run already need no more."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    def __init__(self, *_, **__):
        raise RuntimeError("here brokers are not started by the tests")
