import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * One part of a workload through a Jakarta Messaging client, as the drivers in Python play it: READY, GO and RESULT on
 * the standard streams. Arguments are key=value: role, workload, n, size, dest, kind, warm, url, ids, subs; for latency
 * rate at the producer, timed at the consumer.
 */
final class Part {
    /** What differs between the clients. */
    interface Client {
        Connection connect() throws JMSException;

        /** Sends without waiting; `done` is called when the broker has confirmed the message. */
        void confirmed(MessageProducer producer, Message message, Runnable done) throws JMSException;
    }

    private static final int ACKNOWLEDGE_EVERY = 100;
    private static final int WINDOW = 1000;
    private static final int WARM_CALLS = 4000;
    private static final double WARM_RATE = 10_000;
    private static final long WARM_LIMIT_MS = 60_000;
    /** The timetable of benchmarks/latency.py: it begins in a moment, and what is nearly due is sent. */
    private static final long IN_A_MOMENT = 200_000_000;
    private static final long EARLY = 50_000;
    private static final int DIGITS = 10;
    private static final int TIME_DIGITS = 20;
    private static final com.sun.management.OperatingSystemMXBean SYSTEM =
        (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final Client client;
    private final String workload;
    private final String dest;
    private final boolean topic;
    private final int n;
    private final int size;
    private final int warm;
    private final boolean timed;
    private final Map<String, String> job;
    private volatile long cpu;

    private Part(Client client, Map<String, String> job) {
        this.client = client;
        this.job = job;
        workload = job.get("workload");
        dest = job.get("dest");
        topic = job.get("kind").equals("topic");
        n = Integer.parseInt(job.get("n"));
        size = Integer.parseInt(job.get("size"));
        warm = Integer.parseInt(job.getOrDefault("warm", "0"));
        timed = job.containsKey("timed");
    }

    static Map<String, String> job(String[] arguments) {
        Map<String, String> job = new HashMap<>();
        for (String argument : arguments) {
            int equals = argument.indexOf('=');
            job.put(argument.substring(0, equals), argument.substring(equals + 1));
        }
        return job;
    }

    static void play(Client client, Map<String, String> job) throws Exception {
        Part part = new Part(client, job);
        switch (job.get("role")) {
            case "produce": part.produce(); break;
            case "send": part.keepTimetable(); break;
            case "consume": part.consume(); break;
            case "respond": part.respond(); break;
            case "request": part.request(); break;
            case "correlate": part.correlate(); break;
            default: throw new IllegalArgumentException("no role " + job.get("role"));
        }
    }

    private void ready() {
        cpu = SYSTEM.getProcessCpuTime();
        System.out.println("READY");
        System.out.flush();
    }

    private void readyGo() throws Exception {
        ready();
        String line = new BufferedReader(new InputStreamReader(System.in)).readLine();
        if (!"GO".equals(line)) {
            System.exit(3);
        }
        cpu = SYSTEM.getProcessCpuTime();
    }

    private void result(String fields) {
        double used = (SYSTEM.getProcessCpuTime() - cpu) / 1e9;
        System.out.println("RESULT {" + fields + String.format(Locale.ROOT, ",\"cpu_s\":%.3f}", used));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private byte[] body(long number, int digits) {
        byte[] body = new byte[size];
        Arrays.fill(body, digits, size, (byte) 'x');
        long rest = number;
        for (int k = digits - 1; k >= 0; k--, rest /= 10) {
            body[k] = (byte) ('0' + rest % 10);
        }
        return body;
    }

    private long number(Message message) throws JMSException {
        byte[] body = new byte[(int) ((BytesMessage) message).getBodyLength()];
        ((BytesMessage) message).readBytes(body);
        long number = 0;
        for (int k = 0; k < (timed ? TIME_DIGITS : DIGITS); k++) {
            number = number * 10 + (body[k] - '0');
        }
        return number;
    }

    private Message message(Session session, int i) throws JMSException {
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(body(i, DIGITS));
        if (workload.equals("W5")) {
            message.setStringProperty("symbol", "S" + i % 1000);
        } else {
            message.setStringProperty("region", "r" + i % 4);
        }
        message.setIntProperty("qty", workload.equals("W4") ? 51 + i % 49 : i % 100);
        message.setBooleanProperty("urgent", i % 2 == 0);
        if (workload.equals("W6")) {
            message.setJMSCorrelationID("c" + i);
        }
        return message;
    }

    private Connection connect() throws JMSException {
        Connection connection = client.connect();
        connection.start();
        return connection;
    }

    private Destination destination(Session session, String name) throws JMSException {
        return topic ? session.createTopic(name) : session.createQueue(name);
    }

    private long[] send(Connection connection, String name, int count) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(destination(session, name));
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        long start = System.nanoTime();
        if (workload.equals("W1c")) {
            Semaphore window = new Semaphore(WINDOW);
            for (int i = 0; i < count; i++) {
                window.acquire();
                client.confirmed(producer, message(session, i), window::release);
            }
            window.acquire(WINDOW);
        } else {
            for (int i = 0; i < count; i++) {
                producer.send(message(session, i));
            }
        }
        long end = System.nanoTime();
        session.close();  // waits until the broker has what was sent before
        return new long[] {start, workload.equals("W6") ? System.nanoTime() : end};
    }

    private void produce() throws Exception {
        Connection connection = connect();
        if (warm > 0) {
            send(connection, dest + ".warm", warm);
        }
        readyGo();
        long[] times = send(connection, dest, n);
        result("\"t_start\":" + times[0] + ",\"t_end\":" + times[1] + ",\"sent\":" + n);
    }

    /** The producer of a measurement of latency. What warms both ends up has a timetable, too, and is received before. */
    private void keepTimetable() throws Exception {
        Connection connection = connect();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer warmed = session.createConsumer(session.createQueue(dest + ".warmed"));
        sendOnTime(connection, dest + ".warm", WARM_RATE, warm);
        if (warmed.receive(WARM_LIMIT_MS) == null) {
            throw new IllegalStateException("the consumer did not get warm");
        }
        session.close();
        sendOnTime(connection, dest, Double.parseDouble(job.get("rate")), n);
        Runtime.getRuntime().halt(0);
    }

    private void sendOnTime(Connection connection, String name, double rate, int count) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(destination(session, name));
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        long start = System.nanoTime() + IN_A_MOMENT;
        for (int i = 0; i < count; i++) {
            long due = start + (long) (i * 1e9 / rate);
            for (long ahead; (ahead = due - System.nanoTime() - EARLY) > 0;) {
                LockSupport.parkNanos(ahead);
            }
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(body(due, TIME_DIGITS));
            producer.send(message);
        }
        session.close();  // waits until the broker has what was sent before
    }

    /** What the consumers of this process received; several threads add to it. */
    private final class Receipts {
        private final boolean measured;
        private final CountDownLatch complete = new CountDownLatch(1);
        private final long[] times;
        private long expected;
        private long count;
        private long sum;
        private long end;

        Receipts(boolean measured) {
            this.measured = measured;
            times = new long[measured && timed ? n : 0];
        }

        synchronized void add(long number) {
            if (count == 0 && measured) {
                cpu = SYSTEM.getProcessCpuTime();  // what warmed the process up does not count
            }
            if (times.length > 0) {
                times[(int) count] = System.nanoTime() - number;
            }
            count++;
            sum += number;
            if (count == expected) {
                end = System.nanoTime();
                complete.countDown();
            }
        }
    }

    /** One line of `subs` for each: connection, messages expected, selector. */
    private void subscribe(List<Connection> connections, String name, Receipts receipts, boolean all) throws Exception {
        List<Session> sessions = new ArrayList<>();
        for (Connection connection : connections) {
            sessions.add(connection.createSession(false, topic ? Session.DUPS_OK_ACKNOWLEDGE : Session.CLIENT_ACKNOWLEDGE));
        }
        String[] subs = job.get("subs").split("\n");
        long[] left = new long[sessions.size()];
        for (String sub : subs) {
            String[] fields = sub.split("\\|", 3);
            long expected = all ? Long.parseLong(fields[1]) : Long.parseLong(fields[1]) * warm / n;
            left[Integer.parseInt(fields[0])] += expected;
            receipts.expected += expected;
        }
        for (String sub : subs) {
            String[] fields = sub.split("\\|", 3);
            int conn = Integer.parseInt(fields[0]);
            String selector = fields[2].isEmpty() ? null : fields[2];
            MessageConsumer consumer = sessions.get(conn).createConsumer(destination(sessions.get(conn), name), selector);
            consumer.setMessageListener(message -> {
                try {
                    long number = number(message);
                    left[conn]--;
                    if (!topic && left[conn] % ACKNOWLEDGE_EVERY == 0) {
                        message.acknowledge();
                    }
                    receipts.add(number);
                } catch (JMSException error) {
                    error.printStackTrace();
                }
            });
        }
    }

    private void consume() throws Exception {
        int highest = 0;
        for (String sub : job.get("subs").split("\n")) {
            highest = Math.max(highest, Integer.parseInt(sub.substring(0, sub.indexOf('|'))));
        }
        List<Connection> connections = new ArrayList<>();
        for (int k = 0; k <= highest; k++) {
            connections.add(connect());
        }
        Receipts warming = new Receipts(false);
        if (warm > 0) {
            subscribe(connections, dest + ".warm", warming, false);
        }
        Receipts receipts = new Receipts(true);
        subscribe(connections, dest, receipts, true);
        ready();
        if (timed && warming.complete.await(WARM_LIMIT_MS, TimeUnit.MILLISECONDS)) {
            Session session = connections.get(0).createSession(false, Session.AUTO_ACKNOWLEDGE);
            session.createProducer(session.createQueue(dest + ".warmed")).send(session.createMessage());
        }
        receipts.complete.await(75, TimeUnit.SECONDS);
        if (timed) {
            result("\"times\":" + Arrays.toString(Arrays.copyOf(receipts.times, (int) receipts.count)));
            return;
        }
        long end = receipts.end == 0 ? System.nanoTime() : receipts.end;
        result("\"received\":" + receipts.count + ",\"need\":" + receipts.expected + ",\"sum\":" + receipts.sum
            + ",\"t_end\":" + end);
    }

    private void respond() throws Exception {
        Connection connection = connect();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(null);
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        session.createConsumer(session.createQueue(dest)).setMessageListener(message -> {
            try {
                BytesMessage reply = session.createBytesMessage();
                byte[] body = new byte[(int) ((BytesMessage) message).getBodyLength()];
                ((BytesMessage) message).readBytes(body);
                reply.writeBytes(body);
                reply.setJMSCorrelationID(message.getJMSMessageID());
                producer.send(message.getJMSReplyTo(), reply);
            } catch (JMSException error) {
                error.printStackTrace();
            }
        });
        ready();
        Thread.sleep(100_000);
    }

    private static String percentiles(long[] times, int count) {
        if (count == 0) {
            return ",\"p50_us\":0.0,\"p99_us\":0.0";
        }
        long[] sorted = Arrays.copyOf(times, count);
        Arrays.sort(sorted);
        return String.format(Locale.ROOT, ",\"p50_us\":%.1f,\"p99_us\":%.1f", sorted[count / 2] / 1e3,
            sorted[Math.min(count - 1, count * 99 / 100)] / 1e3);
    }

    private void request() throws Exception {
        Connection connection = connect();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        TemporaryQueue replies = session.createTemporaryQueue();
        MessageConsumer consumer = session.createConsumer(replies);
        MessageProducer producer = session.createProducer(session.createQueue(dest));
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        int calls = Math.min(WARM_CALLS, 2 * n);
        long[] times = new long[n];
        long start = 0;
        for (int i = -calls; i < n; i++) {
            if (i == 0) {
                readyGo();
                start = System.nanoTime();
            }
            int number = i < 0 ? i + calls : i;
            long before = System.nanoTime();
            Message message = message(session, number);
            message.setJMSReplyTo(replies);
            producer.send(message);
            Message reply = consumer.receive(10_000);
            if (reply == null || number(reply) != number || !message.getJMSMessageID().equals(reply.getJMSCorrelationID())) {
                throw new IllegalStateException("no reply, or a wrong one, to request " + number);
            }
            if (i >= 0) {
                times[i] = System.nanoTime() - before;
            }
        }
        result("\"t_start\":" + start + ",\"t_end\":" + System.nanoTime() + ",\"received\":" + n + percentiles(times, n));
    }

    private void correlate() throws Exception {
        String[] ids = job.get("ids").split(",");
        Connection connection = connect();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue(dest);
        long[] times = new long[ids.length];
        int received = 0;
        int wrong = 0;
        readyGo();
        long start = System.nanoTime();
        long last = start + 60_000_000_000L;
        for (String id : ids) {
            if (System.nanoTime() > last) {
                break;
            }
            long before = System.nanoTime();
            MessageConsumer consumer = session.createConsumer(queue, "JMSCorrelationID = 'c" + id + "'");
            Message message = consumer.receive(3000);
            consumer.close();
            if (message == null) {
                continue;
            }
            times[received++] = System.nanoTime() - before;
            wrong += number(message) == Integer.parseInt(id) ? 0 : 1;
        }
        result("\"t_start\":" + start + ",\"t_end\":" + System.nanoTime() + ",\"received\":" + received + ",\"mismatch\":"
            + wrong + percentiles(times, received));
    }
}
