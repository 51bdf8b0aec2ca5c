# difference: none
# compiles on: 7.1, 7.7, 9.0
vcl 4.1;
backend none none;
sub vcl_recv {
  if (req.http.Content-Length) {
    set req.http.size = req.http.Content-Length;
  }
}
sub vcl_backend_fetch {
  unset bereq.body;
}
