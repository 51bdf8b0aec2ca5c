# difference: framing-headers
# compiles on: 7.1
vcl 4.1;
backend none none;
sub vcl_backend_fetch {
  set bereq.http.content-length = "0";
}
