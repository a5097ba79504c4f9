import java.io.File;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.region.policy.PolicyEntry;
import org.apache.activemq.broker.region.policy.PolicyMap;
import org.apache.activemq.broker.region.policy.VMPendingQueueMessageStoragePolicy;
import org.apache.activemq.broker.region.policy.VMPendingSubscriberMessageStoragePolicy;

/** ActiveMQ Classic in memory: folder, port, maxPageSize. */
public final class ActiveMQBroker {
    private ActiveMQBroker() { }

    public static void main(String[] arguments) throws Exception {
        PolicyEntry policy = new PolicyEntry();
        policy.setProducerFlowControl(false);
        policy.setOptimizedDispatch(true);
        policy.setMaxPageSize(Integer.parseInt(arguments[2]));
        policy.setPendingQueuePolicy(new VMPendingQueueMessageStoragePolicy());
        policy.setPendingSubscriberPolicy(new VMPendingSubscriberMessageStoragePolicy());
        PolicyMap policies = new PolicyMap();
        policies.setDefaultEntry(policy);
        BrokerService broker = new BrokerService();
        broker.setBrokerName("peer");
        broker.setPersistent(false);
        broker.setUseJmx(false);
        broker.setSchedulerSupport(false);
        broker.setDataDirectoryFile(new File(arguments[0]));
        broker.setDestinationPolicy(policies);
        broker.getSystemUsage().getMemoryUsage().setLimit(2L << 30);
        broker.addConnector("tcp://127.0.0.1:" + arguments[1] + "?maximumConnections=1000");
        broker.start();
        broker.waitUntilStopped();
    }
}
