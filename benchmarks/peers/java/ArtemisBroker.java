import java.io.File;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;
import org.apache.activemq.artemis.core.settings.impl.AddressSettings;

/** Artemis in memory: folder, port. Both of its protocols on one port. */
public final class ArtemisBroker {
    private ArtemisBroker() { }

    public static void main(String[] arguments) throws Exception {
        ConfigurationImpl configuration = new ConfigurationImpl();
        configuration.setName("peer");
        configuration.setPersistenceEnabled(false);
        configuration.setSecurityEnabled(false);
        configuration.setJMXManagementEnabled(false);
        configuration.setBrokerInstance(new File(arguments[0]));
        configuration.setJournalDirectory(arguments[0] + "/journal");
        configuration.setBindingsDirectory(arguments[0] + "/bindings");
        configuration.setPagingDirectory(arguments[0] + "/paging");
        configuration.setLargeMessagesDirectory(arguments[0] + "/large");
        configuration.setGlobalMaxSize(-1);
        configuration.addAddressSetting("#", new AddressSettings().setMaxSizeBytes(-1).setMaxDeliveryAttempts(-1));
        configuration.addAcceptorConfiguration("peer",
            "tcp://127.0.0.1:" + arguments[1] + "?protocols=CORE,AMQP;tcpNoDelay=true;amqpCredits=1000;amqpLowCredits=300");
        EmbeddedActiveMQ broker = new EmbeddedActiveMQ();
        broker.setConfiguration(configuration);
        broker.start();
        Thread.currentThread().join();
    }
}
