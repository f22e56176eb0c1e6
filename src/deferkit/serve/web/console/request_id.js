// Names of requests: the service carries out each one once, however often it is sent.

/** A new name; also where `crypto.randomUUID` is missing, which it is without TLS. */
export function requestId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `console-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
