# difference: none
# compiles on: 7.1, 7.7, 9.0
vcl 4.1;
import blob;
backend none none;
sub vcl_synth {
  synthetic("a page");
  synthetic(resp.status);
  synthetic("status " + resp.status + ", " + true + req.http.nothing);
  synthetic(blob.decode(HEX, encoded="616263"));
  synthetic("x" + :YWJj:);
  return (deliver);
}
sub vcl_backend_error {
  synthetic("a page");
  return (deliver);
}
