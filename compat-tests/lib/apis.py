"""Which APIs a broker serves, asked of it, and their names."""
import struct

from lib import wire

NAMES = dict(enumerate("""Produce Fetch ListOffsets Metadata LeaderAndIsr StopReplica UpdateMetadata ControlledShutdown OffsetCommit
OffsetFetch FindCoordinator JoinGroup Heartbeat LeaveGroup SyncGroup DescribeGroups ListGroups SaslHandshake ApiVersions CreateTopics
DeleteTopics DeleteRecords InitProducerId OffsetForLeaderEpoch AddPartitionsToTxn AddOffsetsToTxn EndTxn WriteTxnMarkers
TxnOffsetCommit DescribeAcls CreateAcls DeleteAcls DescribeConfigs AlterConfigs AlterReplicaLogDirs DescribeLogDirs
SaslAuthenticate CreatePartitions CreateDelegationToken RenewDelegationToken ExpireDelegationToken DescribeDelegationToken
DeleteGroups ElectLeaders IncrementalAlterConfigs AlterPartitionReassignments ListPartitionReassignments OffsetDelete
DescribeClientQuotas AlterClientQuotas DescribeUserScramCredentials AlterUserScramCredentials Vote BeginQuorumEpoch EndQuorumEpoch
DescribeQuorum AlterPartition UpdateFeatures Envelope FetchSnapshot DescribeCluster DescribeProducers BrokerRegistration
BrokerHeartbeat UnregisterBroker DescribeTransactions ListTransactions AllocateProducerIds ConsumerGroupHeartbeat
ConsumerGroupDescribe ControllerRegistration GetTelemetrySubscriptions PushTelemetry AssignReplicasToDirs ListConfigResources
DescribeTopicPartitions ShareGroupHeartbeat ShareGroupDescribe ShareFetch ShareAcknowledge AddRaftVoter RemoveRaftVoter
UpdateRaftVoter""".split()))
# What a part of a script needs.
NEEDS = {"group": ["JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch", "FindCoordinator"],
         "group848": ["ConsumerGroupHeartbeat"],
         "transaction": ["AddPartitionsToTxn", "EndTxn", "FindCoordinator", "InitProducerId"],
         "transaction_group": ["AddOffsetsToTxn", "TxnOffsetCommit", "JoinGroup"]}


def served(host, port):
    """The highest version that the broker serves of each API, by name."""
    answer = wire.ask((host, port), wire.API_VERSIONS, 0)
    error, count = struct.unpack(">hi", answer[4:10])
    if error != 0:
        raise OSError(f"ApiVersions was answered with error {error}")
    entries = [struct.unpack(">hhh", answer[10 + 6 * n:16 + 6 * n]) for n in range(count)]
    return {NAMES.get(key, str(key)): high for key, _, high in entries}


def missing(address, part):
    """What this broker does not serve of what a part of a script needs."""
    host, _, port = address.rpartition(":")
    there = served(host, int(port))
    return [name for name in NEEDS.get(part, []) if name not in there]


def in_words(used):
    """Sentences like `Fetch 4-12, Produce 7`, of pairs of key and version."""
    versions = {}
    for key, version in used:
        versions.setdefault(NAMES.get(key, f"API {key}"), []).append(version)
    return ", ".join(f"{name} {min(v)}" if len(v) == 1 else f"{name} {min(v)}-{max(v)}" for name, v in sorted(versions.items()))
