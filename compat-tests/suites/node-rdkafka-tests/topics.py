"""The topics that node-rdkafka's tests expect, as its own script makes them: topics.py BOOTSTRAP."""
import sys

from confluent_kafka.admin import AdminClient, NewTopic

TOPICS = ["test", "test2", "test3", "test4", "test5", "test6"]

admin = AdminClient({"bootstrap.servers": sys.argv[1]})
for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in TOPICS]).values():
    made.result(30)
