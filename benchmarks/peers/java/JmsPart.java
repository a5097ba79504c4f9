import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageProducer;
import java.util.Map;

/** A client whose connection factory takes a URL: Artemis' own and Qpid JMS. `factory` names its class. */
public final class JmsPart {
    private JmsPart() { }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> job = Part.job(arguments);
        ConnectionFactory factory = (ConnectionFactory) Class.forName(job.get("factory")).getConstructor(String.class)
            .newInstance(job.get("url"));
        Part.play(new Part.Client() {
            @Override
            public Connection connect() throws JMSException {
                return factory.createConnection();
            }

            @Override
            public void confirmed(MessageProducer producer, Message message, Runnable done) throws JMSException {
                producer.send(message, new CompletionListener() {
                    @Override
                    public void onCompletion(Message sent) {
                        done.run();
                    }

                    @Override
                    public void onException(Message sent, Exception error) {
                        error.printStackTrace();
                    }
                });
            }
        }, job);
    }
}
