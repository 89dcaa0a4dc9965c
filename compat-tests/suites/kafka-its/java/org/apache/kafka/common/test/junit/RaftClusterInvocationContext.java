package org.apache.kafka.common.test.junit;

import floodmark.its.Chosen;
import floodmark.its.Cluster;

import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;

import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

import java.util.List;

/** In the place of Kafka's class of this name: each @ClusterTest gets processes instead of brokers inside this JVM. */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String name;
    private final ClusterConfig config;
    private final Type type;

    public RaftClusterInvocationContext(String name, ClusterConfig config, boolean combined) {
        this.name = name;
        this.config = config;
        this.type = combined ? Type.CO_KRAFT : Type.KRAFT;
    }

    @Override
    public String getDisplayName(int number) {
        return name + " [" + number + "] " + type + " " + String.join(",", config.tags());
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        Cluster cluster = new Cluster(config, type);
        ExecutionCondition chosen = context -> Chosen.condition(context, type, config);
        BeforeEachCallback before = context -> {
            cluster.layOut(context.getRequiredTestClass().getSimpleName() + "." + name);
            if (config.isAutoStart())
                cluster.start();
        };
        AfterTestExecutionCallback after = context -> cluster.stop();
        AfterEachCallback always = context -> cluster.stop();  // also when the beginning failed
        return List.of(chosen, before, after, always, new ClusterInstanceParameterResolver(cluster));
    }
}
