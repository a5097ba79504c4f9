import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import javax.jms.InvalidSelectorException;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.filter.BooleanExpression;
import org.apache.activemq.filter.MessageEvaluationContext;
import org.apache.activemq.selector.SelectorParser;

/**
 * What ActiveMQ Classic says to selectors. A line of the input is a selector and messages, separated by blanks; of the
 * output, a letter per message: T selected, F not, E refused with an error; or R and why the selector is refused.
 *
 * <p>Texts are URL-safe base64 of UTF-8 without padding. A message is name=type:value,… with the letters of SieveMQ's property types, and n for a
 * null String. Header fields are named as in selectors.
 */
public final class SelectorAnswers {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, "US-ASCII");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split(" ")));
            out.flush();
        }
    }

    private static String answer(String[] words) throws Exception {
        BooleanExpression selector;
        try {
            selector = SelectorParser.parse(text(words[0]));
        } catch (InvalidSelectorException refused) {
            return "R " + encoded(String.valueOf(refused.getMessage()));
        } catch (Throwable failed) { // its lexer throws Errors
            return "R " + encoded(String.valueOf(failed));
        }
        StringBuilder letters = new StringBuilder();
        for (int at = 1; at < words.length; at++) {
            MessageEvaluationContext context = new MessageEvaluationContext();
            context.setMessageReference(message(words[at]));
            try {
                letters.append(selector.matches(context) ? 'T' : 'F');
            } catch (Throwable failed) {
                letters.append('E');
            }
        }
        return letters.toString();
    }

    private static ActiveMQMessage message(String described) throws Exception {
        ActiveMQMessage message = new ActiveMQMessage();
        message.setDestination(ActiveMQDestination.createDestination("q", ActiveMQDestination.QUEUE_TYPE));
        for (String part : described.split(",")) {
            if (part.isEmpty() || part.equals("-")) {
                continue;
            }
            String name = text(part.substring(0, part.indexOf('=')));
            char type = part.charAt(part.indexOf('=') + 1);
            String value = text(part.substring(part.indexOf(':') + 1));
            switch (name) {
                case "JMSMessageID" -> message.setJMSMessageID(value);
                case "JMSTimestamp" -> message.setJMSTimestamp(Long.parseLong(value));
                case "JMSPriority" -> message.setJMSPriority(Integer.parseInt(value));
                case "JMSDeliveryMode" -> message.setJMSDeliveryMode(Integer.parseInt(value));
                case "JMSCorrelationID" -> message.setJMSCorrelationID(value);
                case "JMSType" -> message.setJMSType(value);
                default -> property(message, name, type, value);
            }
        }
        message.setReadOnlyProperties(true);
        return message;
    }

    private static void property(ActiveMQMessage message, String name, char type, String value) throws Exception {
        switch (type) {
            case 'z' -> message.setBooleanProperty(name, value.equals("true"));
            case 'b' -> message.setByteProperty(name, Byte.parseByte(value));
            case 'h' -> message.setShortProperty(name, Short.parseShort(value));
            case 'i' -> message.setIntProperty(name, Integer.parseInt(value));
            case 'l' -> message.setLongProperty(name, Long.parseLong(value));
            case 'f' -> message.setFloatProperty(name, Float.parseFloat(value));
            case 'd' -> message.setDoubleProperty(name, Double.parseDouble(value));
            case 's' -> message.setStringProperty(name, value);
            case 'n' -> message.setStringProperty(name, null);
            default -> throw new IllegalArgumentException(String.valueOf(type));
        }
    }

    private static String text(String base64) {
        return new String(Base64.getUrlDecoder().decode(base64), StandardCharsets.UTF_8);
    }

    private static String encoded(String text) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
