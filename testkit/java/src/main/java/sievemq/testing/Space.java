package sievemq.testing;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.opentest4j.AssertionFailedError;

/** The namespace of one test, and the broker's clock. Faults and assertions take what the API takes, by its names. */
public final class Space {
  private final SieveMQ.Broker broker;
  private final JsonObject opened;
  private final String path;

  Space(SieveMQ.Broker broker) {
    this.broker = broker;
    opened = JsonParser.parseString(broker.ask("POST", "/namespaces", Map.of())).getAsJsonObject();
    path = "/namespaces/" + URLEncoder.encode(name(), StandardCharsets.UTF_8);
  }

  public String name() {
    return opened.get("name").getAsString();
  }

  /** For Qpid JMS: {@code new JmsConnectionFactory(space.amqpUrl())}. */
  public String amqpUrl() {
    return broker.reached(opened.get("amqp_url").getAsString());
  }

  /** For STOMP clients; its path is the host header of CONNECT. */
  public String stompUrl() {
    return broker.reached(opened.get("stomp_url").getAsString());
  }

  /** Moves the broker's clock; what is due by then has happened when this returns. */
  public void advance(Duration by) {
    broker.ask("POST", "/clock/advance", Map.of("ms", by.toMillis()));
  }

  /** Stops the broker's clock until it is advanced, or the test ends. */
  public void freeze() {
    broker.ask("POST", "/clock/freeze", null);
  }

  /** Changes rules of a destination, such as {@code Map.of("max_attempts", 2, "redelivery_delay", 60_000)}. */
  public void policy(String destination, Map<String, ?> rules) {
    broker.ask("POST", path + "/policies", Map.of("destination", destination, "rules", rules));
  }

  /** Requests a fault, such as {@code Map.of("fault", "drop", "on", "send", "after", true)}. */
  public void fault(Map<String, ?> fault) {
    broker.ask("POST", path + "/faults", fault);
  }

  /**
   * Fails unless something is so, or becomes so within a time: received, consumed, scheduled, dead_letters, empty,
   * awaited, nothing_lost or idle.
   */
  public List<Message> expect(String that, Duration within, Map<String, ?> given) {
    Map<String, Object> body = new HashMap<>(given);
    body.put("that", that);
    body.put("within_ms", within.toMillis());
    Outcome outcome = new Gson().fromJson(broker.ask("POST", path + "/assertions", body), Outcome.class);
    if (!outcome.passed) throw new AssertionFailedError(outcome.text);
    return outcome.messages;
  }

  /** The end of the namespace's journal, with the reasons why messages were not delivered. */
  public String explanation() {
    return broker.ask("GET", path + "/explanation", null);
  }

  void close() {
    broker.ask("POST", "/clock/restore", null);
    broker.ask("DELETE", path, null);
  }

  /** A message that an assertion was about. */
  public record Message(String message_id, String type, Map<String, Object> properties, String text) {}

  private record Outcome(boolean passed, String text, List<Message> messages) {}
}
