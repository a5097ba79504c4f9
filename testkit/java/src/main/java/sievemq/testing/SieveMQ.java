package sievemq.testing;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.Writer;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ExtensionContext.Store.CloseableResource;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.junit.jupiter.api.extension.TestExecutionExceptionHandler;

/**
 * A SieveMQ broker for tests with JUnit 5: {@code @ExtendWith(SieveMQ.class)}, and a parameter of the type {@link Space}.
 *
 * <p>Each test has a namespace of its own. After the test the clock is the machine's again and the namespace is gone. The
 * exception of a failing test carries what happened in it, and why messages were not delivered.
 *
 * <p>{@code SIEVEMQ_HTTP_URL} names a broker that runs already with test control. Without it {@code sievemq broker
 * --test-control} is started once, and {@code SIEVEMQ_COMMAND} says by which command.
 */
public final class SieveMQ implements ParameterResolver, AfterEachCallback, TestExecutionExceptionHandler {
  private static final Namespace STORE = Namespace.create(SieveMQ.class);
  private static String httpUrl = System.getenv("SIEVEMQ_HTTP_URL");
  private static String wire;

  /**
   * Uses a broker that runs already with test control, for instance in a container. Called before the first test.
   *
   * @param httpUrl of its HTTP port
   * @param wire host:port of its wire port, as this process reaches it; null: as the broker says
   */
  public static void use(String httpUrl, String wire) {
    SieveMQ.httpUrl = httpUrl;
    SieveMQ.wire = wire;
  }

  @Override
  public boolean supportsParameter(ParameterContext parameter, ExtensionContext test) {
    return parameter.getParameter().getType() == Space.class;
  }

  @Override
  public Space resolveParameter(ParameterContext parameter, ExtensionContext test) {
    var broker = test.getRoot().getStore(STORE).getOrComputeIfAbsent(Broker.class, key -> new Broker(), Broker.class);
    return test.getStore(STORE).getOrComputeIfAbsent(Space.class, key -> new Space(broker), Space.class);
  }

  @Override
  public void handleTestExecutionException(ExtensionContext test, Throwable error) throws Throwable {
    Space space = test.getStore(STORE).get(Space.class, Space.class);
    if (space != null) error.addSuppressed(new Explanation(space.explanation()));
    throw error;
  }

  @Override
  public void afterEach(ExtensionContext test) {
    Space space = test.getStore(STORE).remove(Space.class, Space.class);
    if (space != null) space.close();
  }

  /** What happened in the namespace of a failed test. */
  public static final class Explanation extends Exception {
    Explanation(String text) {
      super(text, null, false, false);
    }
  }

  /** The broker, and requests to its test control. */
  static final class Broker implements CloseableResource {
    private final HttpClient client = HttpClient.newHttpClient();
    private Process process;
    private final String base;

    Broker() {
      base = (httpUrl == null ? start() : httpUrl) + "/api/v1/test";
    }

    private String start() {
      String command = System.getenv().getOrDefault("SIEVEMQ_COMMAND", "sievemq");
      List<String> words = new ArrayList<>(List.of(command.split(" ")));
      words.addAll(List.of("broker", "--test-control", "--port", "0", "--http-port", "0"));
      try {
        process = new ProcessBuilder(words).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        Runtime.getRuntime().addShutdownHook(new Thread(process::destroyForcibly));
        BufferedReader output = process.inputReader();
        for (String line = output.readLine(); line != null; line = output.readLine()) {
          JsonObject record = JsonParser.parseString(line).getAsJsonObject();
          if (record.get("event").getAsString().equals("broker.ready")) {
            drain(output);
            return record.get("http_url").getAsString();
          }
        }
      } catch (IOException error) {
        throw new IllegalStateException(command + " broker cannot be started", error);
      }
      throw new IllegalStateException(command + " broker ended before it was ready");
    }

    private static void drain(BufferedReader output) {
      Thread rest = new Thread(() -> {
        try {
          output.transferTo(Writer.nullWriter());
        } catch (IOException ended) {
          // the broker is gone
        }
      });
      rest.setDaemon(true);
      rest.start();
    }

    /** A URL as this process reaches it. */
    String reached(String url) {
      return wire == null ? url : url.replaceFirst("//[^/?]*", "//" + wire);
    }

    String ask(String method, String path, Map<String, ?> body) {
      var request = HttpRequest.newBuilder(URI.create(base + path));
      if (body == null) request.method(method, BodyPublishers.noBody());
      else request.header("Content-Type", "application/json").method(method, BodyPublishers.ofString(new Gson().toJson(body)));
      HttpResponse<String> answer;
      try {
        answer = client.send(request.build(), BodyHandlers.ofString());
      } catch (IOException | InterruptedException error) {
        throw new IllegalStateException(base + " does not answer", error);
      }
      if (answer.statusCode() >= 400) throw new IllegalArgumentException(method + " " + path + ": " + answer.body());
      return answer.body();
    }

    @Override
    public void close() {
      if (process != null) process.destroyForcibly();
    }
  }
}
