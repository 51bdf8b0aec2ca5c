# difference: none
# compiles on: 7.1, 7.7, 9.0
vcl 4.1;
backend none none;
sub vcl_recv {
  set req.http.x = "id " + req.xid;
}
