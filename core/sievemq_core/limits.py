"""Every limit that both ends must agree on, each with its reason.

A broker may announce lower ones in its WELCOME; none may be raised past these.
"""

from __future__ import annotations

# -- frames -----------------------------------------------------------------------------------------------------

#: Bytes of one frame. Large enough for a 64 MiB body plus headers; small enough that one hostile length prefix cannot
#: make the receiver reserve memory that hurts.
MAX_FRAME_BYTES = 68 * 1024 * 1024

#: Bytes of a frame before the broker has let the client in: a HELLO with every field at its limit fits.
HANDSHAKE_FRAME_BYTES = 64 * 1024

#: Bytes of a frame that may hold several commands; a larger frame holds one, for it exists for one large body. The
#: receiver decodes a frame in one go: the worst of this size, nothing but empty maps, takes it 3 to 8 ms and 5 MiB.
GATHER_BYTES = 64 * 1024

#: Commands of one frame. Decoding this number of the smallest takes 1 to 3 ms, well below a turn of the broker's loop.
MAX_FRAME_COMMANDS = 4_096

#: Values in one command of a frame larger than GATHER_BYTES, nested ones included: two arrays of MAX_ARRAY fit. Counted
#: before any of them is made, since a byte may become an empty map of 64.
MAX_CLIENT_VALUES = 40_000

#: The same of what a broker sends, where the frame is larger than UNCOUNTED_BYTES: a browse page of MAX_ARRAY messages
#: has half as many.
MAX_BROKER_VALUES = 524_288

#: Bytes of a broker's frame whose values a client does not count: pages of messages are up to 1 MiB, and counting would
#: cost more than decoding. Nothing but empty maps takes 150 MiB.
UNCOUNTED_BYTES = 2 * 1024 * 1024

#: Values of a frame before the broker has let the client in: a HELLO has ten, and one that resumes a connection lists
#: up to 1,000 consumers twice.
HANDSHAKE_VALUES = 5_000

#: Elements of one array: the tags of a release, the messages of a browse page.
MAX_ARRAY = 16_384

#: Entries of one map: the options of a HELLO, the details of an ERROR.
MAX_MAP = 4_096

# -- message ----------------------------------------------------------------------------------------------------

#: Bytes of one body. The client checks it before sending; the broker announces its own, lower or equal.
MAX_BODY_BYTES = 64 * 1024 * 1024

#: Values in the body of a MapMessage, StreamMessage or ObjectMessage, nested ones included. One byte may become an
#: empty map of 64 bytes: the worst body with this number of values takes its receiver some 350 MiB.
MAX_BODY_VALUES = 4_194_304

#: Properties of one message: more than any real message, few enough to decode in well under a millisecond.
MAX_PROPERTIES = 1_000

#: Bytes of all properties of one message, packed. They are there to be selected by, bodies carry data.
MAX_PROPERTIES_BYTES = 256 * 1024

#: Characters of a text property, as of JMSType. A LIKE passes over such a text in some 0.1 ms, and MAX_LIKE_SEARCHES
#: of them stay below what a turn of the broker's loop may take (10 ms). Longer text belongs into the body.
MAX_PROPERTY_CHARS = 32_768

#: Characters of a property name, and of JMSType, JMSCorrelationID, JMSMessageID.
MAX_NAME_CHARS = 1_000
MAX_HEADER_CHARS = 32_768

#: Characters of a destination's name; long enough for generated names, short enough for a metrics label.
MAX_DESTINATION_CHARS = 512

#: Characters of a namespace, client id, user name or subscription name (SUB-28 asks for 128).
MAX_IDENTIFIER_CHARS = 255

# -- selector ---------------------------------------------------------------------------------------------------

#: Characters of a selector: as many as 10,000 comparisons of one name take. Checked before the lexer starts.
MAX_SELECTOR_CHARS = 524_288

#: Nodes of a selector's tree: operators, names and constants, without those of long lists. A node costs some 20 µs,
#: and a broker compiles within a turn of its loop, which may take 10 ms. Selectors in use have a few dozen.
MAX_SELECTOR_NODES = 384

#: Constants in all lists of a selector: IN, and long chains of a = 1 OR a = 2. Each costs about a microsecond.
MAX_SELECTOR_CONSTANTS = 10_000

#: Wildcards in all LIKE patterns of a selector: each costs less than a microsecond.
MAX_LIKE_WILDCARDS = 512

#: Passes over a text that all LIKE patterns of a selector may take for one message. A pattern with text between two %
#: takes one; where that text has _ in it, two more for each different piece of up to 16 characters between the _, and
#: one for 32 characters. Patterns such as 'a%' and '%a' take none. The product with MAX_PROPERTY_CHARS bounds the time.
MAX_LIKE_SEARCHES = 24

#: Depth of a selector's tree. Python's own compiler recurses a few frames per level; 100 keeps clear of its limit
#: however deep the caller's stack already is. AND and OR chains count as one level.
MAX_SELECTOR_DEPTH = 100

# -- connection -------------------------------------------------------------------------------------------------

#: Sessions of one connection, consumers of one session: a leak shows as an error, not as a slow broker.
MAX_SESSIONS = 10_000
MAX_CONSUMERS = 100_000

#: Messages a consumer may hold unhandled at the client. This bounds the search of a recall.
MAX_CREDIT = 16_000

#: Milliseconds a peer may take for the first command after connecting.
HANDSHAKE_TIMEOUT_MS = 10_000

#: Milliseconds that a peer may take for one frame: a body of 64 MiB over 5 Mbit/s. Until it is complete its bytes are
#: held for nothing.
FRAME_TIMEOUT_MS = 120_000

#: Milliseconds between heartbeats where neither end sets another; twice this without a byte ends a connection.
HEARTBEAT_MS = 15_000
MIN_HEARTBEAT_MS = 100

#: Microseconds that an end may poll before it blocks (decision 0022). Waking a sleeping processor takes far less.
MAX_BUSY_POLL_US = 10_000
