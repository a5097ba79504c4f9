import jakarta.jms.ConnectionFactory;
import jakarta.jms.Message;
import jakarta.jms.MessageListener;
import jakarta.jms.TextMessage;
import java.util.Collections;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.jms.annotation.EnableJms;
import org.springframework.jms.annotation.JmsListener;
import org.springframework.jms.config.DefaultJmsListenerContainerFactory;
import org.springframework.jms.connection.CachingConnectionFactory;
import org.springframework.jms.connection.JmsTransactionManager;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.jms.listener.AbstractMessageListenerContainer;
import org.springframework.jms.listener.DefaultMessageListenerContainer;
import org.springframework.jms.listener.SimpleMessageListenerContainer;
import org.springframework.messaging.handler.annotation.Header;
import org.springframework.messaging.handler.annotation.SendTo;
import org.springframework.transaction.support.TransactionTemplate;

/** Spring's JMS support over Qpid JMS, against the broker whose URL is AMQP_URL: a line of TAP for each step. */
public class SpringJms {
    static final CachingConnectionFactory FACTORY =
            new CachingConnectionFactory(new JmsConnectionFactory(System.getenv("AMQP_URL")));
    static final int SOON = 20_000;
    static final int MOMENT = 200;

    interface Step {
        void run(JmsTemplate template) throws Exception;
    }

    static void step(String name, Step step) {
        JmsTemplate template = new JmsTemplate(FACTORY);
        template.setReceiveTimeout(SOON);
        try {
            step.run(template);
            System.out.println("ok - " + name);
        } catch (Throwable error) {
            System.out.println("not ok - " + name + " # " + error);
        }
    }

    static void same(Object expected, Object found) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError(found + " instead of " + expected);
        }
    }

    public static void main(String[] arguments) {
        step("a template sends and receives", SpringJms::template);
        step("a template receives by a selector", SpringJms::selector);
        step("a wrong selector is refused", SpringJms::wrongSelector);
        step("a template sends with quality of service", SpringJms::quality);
        step("a template browses", SpringJms::browse);
        step("a template sends a request and receives the reply", SpringJms::request);
        step("a transaction is rolled back, another committed", SpringJms::transaction);
        step("a listener that fails gets its message again", SpringJms::failing);
        step("five listeners share a queue", SpringJms::concurrent);
        step("a durable subscription keeps what its listener missed", SpringJms::durable);
        step("two listeners share a subscription", SpringJms::shared);
        step("an annotated listener answers", SpringJms::annotated);
        FACTORY.destroy();
        System.exit(0);
    }

    static void template(JmsTemplate template) throws Exception {
        template.convertAndSend("spring", "hello", message -> {
            message.setStringProperty("region", "EU");
            return message;
        });
        Message message = template.receive("spring");
        same("hello", ((TextMessage) message).getText());
        same("EU", message.getStringProperty("region"));
        template.convertAndSend("spring", Map.of("amount", 120));
        same(Map.of("amount", 120), template.receiveAndConvert("spring"));
        template.convertAndSend("spring", new byte[] {1, 2, 3});
        same(3, ((byte[]) template.receiveAndConvert("spring")).length);
    }

    static void selector(JmsTemplate template) throws Exception {
        for (int amount = 0; amount < 10; amount++) {
            int value = amount;
            template.convertAndSend("selected", "" + value, message -> {
                message.setIntProperty("amount", value);
                return message;
            });
        }
        same("7", template.receiveSelectedAndConvert("selected", "amount BETWEEN 7 AND 8"));
        template.setReceiveTimeout(MOMENT);
        same(null, template.receiveSelected("selected", "amount > 100"));
    }

    static void wrongSelector(JmsTemplate template) {
        try {
            template.receiveSelected("selected", "amount = = 1");
        } catch (org.springframework.jms.InvalidSelectorException error) {
            return;
        }
        throw new AssertionError("no exception");
    }

    static void quality(JmsTemplate template) throws Exception {
        template.setExplicitQosEnabled(true);
        template.setPriority(8);
        template.setTimeToLive(100_000);
        template.convertAndSend("quality", "now");
        Message message = template.receive("quality");
        same(8, message.getJMSPriority());
        same(true, message.getJMSExpiration() > System.currentTimeMillis());
        template.setDeliveryDelay(500);
        template.convertAndSend("quality", "late");
        template.setReceiveTimeout(MOMENT);
        same(null, template.receive("quality"));
        template.setReceiveTimeout(SOON);
        same("late", template.receiveAndConvert("quality"));
    }

    static void browse(JmsTemplate template) {
        for (int n = 0; n < 50; n++) {
            template.convertAndSend("browsed", "" + n);
        }
        int found = template.browse("browsed", (session, browser) -> Collections.list(browser.getEnumeration()).size());
        same(50, found);
    }

    static void request(JmsTemplate template) throws Exception {
        DefaultMessageListenerContainer server = started(new DefaultMessageListenerContainer(), "requests", message ->
                template.send(message.getJMSReplyTo(), session -> session.createTextMessage("pong")));
        try {
            Message reply = template.sendAndReceive("requests", session -> session.createTextMessage("ping"));
            same("pong", ((TextMessage) reply).getText());
        } finally {
            server.destroy();
        }
    }

    static void transaction(JmsTemplate template) {
        TransactionTemplate transactions = new TransactionTemplate(new JmsTransactionManager(FACTORY));
        template.setSessionTransacted(true);
        transactions.executeWithoutResult(status -> {
            template.convertAndSend("transacted", "dropped");
            status.setRollbackOnly();
        });
        transactions.executeWithoutResult(status -> template.convertAndSend("transacted", "sent"));
        transactions.executeWithoutResult(status -> {
            same("sent", template.receiveAndConvert("transacted"));
            status.setRollbackOnly();
        });
        same("sent", transactions.execute(status -> template.receiveAndConvert("transacted")));
        template.setReceiveTimeout(MOMENT);
        same(null, transactions.execute(status -> template.receive("transacted")));
    }

    interface Receiver {
        void receive(Message message) throws Exception;
    }

    static <C extends AbstractMessageListenerContainer> C started(C container, String destination, Receiver receiver) {
        container.setConnectionFactory(FACTORY);
        return startedWith(container, destination, receiver);
    }

    static <C extends AbstractMessageListenerContainer> C startedWith(
            C container, String destination, Receiver receiver) {
        container.setDestinationName(destination);
        container.setMessageListener((MessageListener) message -> {
            try {
                receiver.receive(message);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        });
        container.afterPropertiesSet();
        container.start();
        return container;
    }

    static void failing(JmsTemplate template) throws Exception {
        BlockingQueue<Integer> attempts = new LinkedBlockingQueue<>();
        DefaultMessageListenerContainer container = new DefaultMessageListenerContainer();
        container.setSessionTransacted(true);
        container.setErrorHandler(error -> { });
        started(container, "failing", message -> {
            int attempt = message.getIntProperty("JMSXDeliveryCount");
            attempts.add(attempt);
            if (attempt < 3) {
                throw new IllegalStateException("not yet");
            }
        });
        try {
            template.convertAndSend("failing", "x");
            for (int attempt = 1; attempt <= 3; attempt++) {
                same(attempt, attempts.poll(SOON, TimeUnit.MILLISECONDS));
            }
            same(null, attempts.poll(MOMENT, TimeUnit.MILLISECONDS));
        } finally {
            container.destroy();
        }
    }

    static void concurrent(JmsTemplate template) throws Exception {
        BlockingQueue<String> found = new LinkedBlockingQueue<>();
        DefaultMessageListenerContainer container = new DefaultMessageListenerContainer();
        container.setConcurrency("5-5");
        started(container, "shared.queue", message -> found.add(message.getBody(String.class)));
        try {
            for (int n = 0; n < 200; n++) {
                template.convertAndSend("shared.queue", "" + n);
            }
            for (int n = 0; n < 200; n++) {
                same(true, found.poll(SOON, TimeUnit.MILLISECONDS) != null);
            }
            same(null, found.poll(MOMENT, TimeUnit.MILLISECONDS));
        } finally {
            container.destroy();
        }
    }

    static SimpleMessageListenerContainer subscribed(ConnectionFactory factory, BlockingQueue<String> found) {
        SimpleMessageListenerContainer container = new SimpleMessageListenerContainer();
        container.setConnectionFactory(factory);
        container.setPubSubDomain(true);
        container.setSubscriptionDurable(true);
        container.setDurableSubscriptionName("kept");
        container.setClientId("spring");
        return startedWith(container, "news", message -> found.add(message.getBody(String.class)));
    }

    static void durable(JmsTemplate template) throws Exception {
        JmsConnectionFactory factory = new JmsConnectionFactory(System.getenv("AMQP_URL"));
        BlockingQueue<String> found = new LinkedBlockingQueue<>();
        subscribed(factory, found).destroy();
        template.setPubSubDomain(true);
        template.convertAndSend("news", "missed");
        SimpleMessageListenerContainer container = subscribed(factory, found);
        try {
            same("missed", found.poll(SOON, TimeUnit.MILLISECONDS));
        } finally {
            container.destroy();
        }
    }

    static void shared(JmsTemplate template) throws Exception {
        BlockingQueue<String> found = new LinkedBlockingQueue<>();
        DefaultMessageListenerContainer container = new DefaultMessageListenerContainer();
        container.setPubSubDomain(true);
        container.setSubscriptionShared(true);
        container.setSubscriptionName("shared");
        container.setConcurrentConsumers(2);
        started(container, "shared.topic", message -> found.add(message.getBody(String.class)));
        template.setPubSubDomain(true);
        try {
            while (container.getActiveConsumerCount() < 2) {
                Thread.sleep(10);
            }
            Thread.sleep(MOMENT); // the container counts a consumer before the broker has its subscription
            for (int n = 0; n < 20; n++) {
                template.convertAndSend("shared.topic", "" + n);
            }
            for (int n = 0; n < 20; n++) {
                same(true, found.poll(SOON, TimeUnit.MILLISECONDS) != null);
            }
            same(null, found.poll(MOMENT, TimeUnit.MILLISECONDS));
        } finally {
            container.destroy();
        }
    }

    @Configuration
    @EnableJms
    public static class Application {
        @Bean
        public DefaultJmsListenerContainerFactory jmsListenerContainerFactory() {
            DefaultJmsListenerContainerFactory factory = new DefaultJmsListenerContainerFactory();
            factory.setConnectionFactory(FACTORY);
            return factory;
        }

        @JmsListener(destination = "orders", selector = "region = 'EU'")
        @SendTo("confirmations")
        public String confirm(String order, @Header("region") String region) {
            return order + " from " + region + " is confirmed";
        }
    }

    static void annotated(JmsTemplate template) {
        try (AnnotationConfigApplicationContext ignored = new AnnotationConfigApplicationContext(Application.class)) {
            for (String region : new String[] {"US", "EU"}) {
                template.convertAndSend("orders", "chair", message -> {
                    message.setStringProperty("region", region);
                    return message;
                });
            }
            same("chair from EU is confirmed", template.receiveAndConvert("confirmations"));
        }
        same("chair", template.receiveAndConvert("orders"));
    }
}
